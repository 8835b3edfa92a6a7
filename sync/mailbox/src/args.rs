//! The program's words.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use clap::Parser;

/// Keep sealed envelopes for devices that are not up together. It can read none.
#[derive(Debug, Clone, Parser)]
#[command(name = "bailey-mailbox", version)]
pub struct Args {
    /// Where to listen: ADDRESS:PORT (UDP); [::]:PORT takes IPv4 too, port 0 is any free one.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: SocketAddr,
    /// Where blobs are kept: a folder, or s3://BUCKET/PREFIX (where this build has it).
    #[arg(long, value_name = "DIR|s3://BUCKET/PREFIX")]
    pub store: StorePlace,
    /// What all blobs may take: a number of bytes, or with K, M, G.
    #[arg(long, value_name = "BYTES", default_value = "4G", value_parser = bytes)]
    pub quota: u64,
    /// What the blobs of one topic may take.
    #[arg(long, value_name = "BYTES", default_value = "256M", value_parser = bytes)]
    pub topic_quota: u64,
    /// How many new topics one address may begin in an hour.
    #[arg(long, value_name = "COUNT", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub topics: u32,
    /// How many days a blob is kept.
    #[arg(long, value_name = "DAYS", default_value_t = 35, value_parser = clap::value_parser!(u32).range(1..=3650))]
    pub keep: u32,
    /// The host to print in its own address; what it listens on unless said.
    #[arg(long, value_name = "HOST")]
    pub host: Option<String>,
    /// The file of its own key; `mailbox.key` in the folder unless said.
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
}

/// Where blobs are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StorePlace {
    /// A folder, made if it is not there.
    Folder(PathBuf),
    /// A bucket and a prefix within it.
    S3 {
        /// The bucket.
        bucket: String,
        /// The prefix; may be empty.
        prefix: String,
    },
}

impl FromStr for StorePlace {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let Some(rest) = text.strip_prefix("s3://") else {
            return match text {
                "" => Err("a folder, or s3://BUCKET/PREFIX"),
                folder if folder.contains("://") => Err("only s3:// and folders are known"),
                folder => Ok(Self::Folder(folder.into())),
            };
        };
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        if bucket.is_empty() {
            return Err("s3:// wants a bucket: s3://BUCKET/PREFIX");
        }
        Ok(Self::S3 {
            bucket: bucket.to_owned(),
            prefix: prefix.trim_matches('/').to_owned(),
        })
    }
}

fn bytes(text: &str) -> Result<u64, &'static str> {
    const WRONG: &str = "a number of bytes from 1 on, or with K, M or G";
    let (digits, unit) = match text.as_bytes().last() {
        Some(b'K' | b'k') => (&text[..text.len() - 1], 1 << 10),
        Some(b'M' | b'm') => (&text[..text.len() - 1], 1 << 20),
        Some(b'G' | b'g') => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(WRONG);
    }
    let count: u64 = digits.parse().map_err(|_| WRONG)?;
    count
        .checked_mul(unit)
        .filter(|bytes| *bytes > 0)
        .ok_or(WRONG)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_and_sizes_are_read_as_they_are_meant() {
        let s3 = |bucket: &str, prefix: &str| StorePlace::S3 {
            bucket: bucket.to_owned(),
            prefix: prefix.to_owned(),
        };
        assert_eq!("s3://b/p/q/".parse(), Ok(s3("b", "p/q")));
        assert_eq!("s3://b".parse(), Ok(s3("b", "")));
        assert_eq!("/d".parse(), Ok(StorePlace::Folder("/d".into())));
        assert!("s3:///p".parse::<StorePlace>().is_err());
        assert!("gs://b".parse::<StorePlace>().is_err());
        assert_eq!(bytes("1"), Ok(1));
        assert_eq!(bytes("2k"), Ok(2048));
        assert_eq!(bytes("3G"), Ok(3 << 30));
        for wrong in ["", "0", "G", "-1", "1.5M", "99999999999G"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }
}
