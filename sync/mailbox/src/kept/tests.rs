use super::*;
use crate::index::Quotas;

const QUOTAS: Quotas = Quotas {
    bytes: 1 << 30,
    topic_bytes: 1 << 30,
    keep_ms: 1 << 40,
};

fn topic(n: u8) -> TopicId {
    TopicId([n; 32])
}

/// What a store of either kind must do.
async fn keeps(open: impl Fn() -> Kept) {
    let kept = open();
    let name = kept.name().await.unwrap();
    assert_eq!(open().name().await.unwrap(), name);
    let blob = vec![7; 1 << 10];
    let hash = hash_of(&blob);
    for (n, at) in [(1, 5), (1, 6), (2, 9)] {
        kept.put(topic(n), at, hash, blob.clone()).await.unwrap();
    }
    let again = kept.put(topic(1), 5, hash, vec![8; 1 << 10]).await;
    assert!(again.is_err(), "one was written over");
    let read = kept.get(topic(1), 5, hash).await.unwrap();
    assert_eq!(read, Some(blob));
    assert_eq!(kept.get(topic(1), 7, hash).await.unwrap(), None);
    let mut index = Index::new(QUOTAS);
    open().list(&mut index).await.unwrap();
    assert_eq!(
        (index.topics(), index.blobs(), index.bytes()),
        (2, 3, 3 << 10)
    );
    assert_eq!(index.end(topic(1)), 7);
    assert_eq!(index.first_from(topic(1), 0).unwrap().hash, hash);
    kept.delete(topic(1), 6, hash).await.unwrap();
    kept.delete(topic(1), 6, hash).await.unwrap();
    let mut index = Index::new(QUOTAS);
    kept.list(&mut index).await.unwrap();
    assert_eq!(index.end(topic(1)), 6);
}

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("bailey-mailbox-{name}-{}", std::process::id()));
    let _none = std::fs::remove_dir_all(&folder);
    folder
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_keeps_blobs() {
    let place = folder("kept");
    keeps(|| Kept::open(&StorePlace::Folder(place.clone())).unwrap()).await;
    std::fs::remove_dir_all(place).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_put_there_is_passed_over_and_damage_is_not_handed_out() {
    let place = folder("strange");
    let kept = Kept::open(&StorePlace::Folder(place.clone())).unwrap();
    let blob = vec![7; 1 << 10];
    let hash = hash_of(&blob);
    kept.put(topic(1), 5, hash, blob).await.unwrap();
    let of_topic = place.join("blobs/topics").join(topic(1).to_string());
    let name = format!("{:016x}-{hash:016x}", 5);
    std::fs::write(of_topic.join("notes.txt"), "x").unwrap();
    std::fs::write(
        of_topic.join(format!("{:016x}-{hash:016X}", 0xab)),
        [0; 1024],
    )
    .unwrap();
    std::fs::write(of_topic.join(format!("{:016x}-{hash:016x}", 6)), [0; 100]).unwrap();
    std::fs::write(place.join("blobs/topics/stray"), "x").unwrap();
    let mut index = Index::new(QUOTAS);
    kept.list(&mut index).await.unwrap();
    assert_eq!(index.blobs(), 1);
    std::fs::write(of_topic.join(name), [8; 1 << 10]).unwrap();
    assert_eq!(kept.get(topic(1), 5, hash).await.unwrap(), None);
    std::fs::remove_dir_all(place).unwrap();
}

/// Against a server of S3 that the environment names, as `.ci/s3` starts one.
#[cfg(feature = "s3")]
#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_keeps_blobs() {
    let Ok(bucket) = std::env::var("BAILEY_S3_BUCKET") else {
        println!("no BAILEY_S3_BUCKET: not tried here");
        return;
    };
    let place = StorePlace::S3 {
        bucket,
        prefix: format!("test/{}", std::process::id()),
    };
    keeps(|| Kept::open(&place).unwrap()).await;
}

#[cfg(not(feature = "s3"))]
#[test]
fn a_build_without_s3_says_so() {
    let place = "s3://bucket/prefix".parse().unwrap();
    assert!(matches!(Kept::open(&place), Err(KeptError::NoS3)));
}
