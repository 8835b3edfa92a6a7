use bailey_docs_store::Hash;
use bailey_model::{BoxId, Incarnation};

use super::*;

const THIS: DeviceId = DeviceId([1; 32]);
const OTHER: DeviceId = DeviceId([2; 32]);
const THIRD: DeviceId = DeviceId([3; 32]);
const NOW: Duration = Duration::from_secs(1000);

fn chain(doc: DocId, writer: DeviceId) -> ChainId {
    ChainId {
        doc,
        writer,
        incarnation: Incarnation([9; 16]),
    }
}

fn head(doc: DocId, writer: DeviceId, seq: u64) -> Head {
    Head {
        chain: chain(doc, writer),
        seq,
        hash: Hash([1; 32]),
    }
}

struct World {
    heads: BTreeMap<ChainId, Head>,
    away: BTreeSet<DeviceId>,
    parting: BTreeSet<DeviceId>,
    week: u64,
    caught_up: bool,
    puts: Puts,
}

impl World {
    fn new(heads: &[Head]) -> Self {
        let mut puts = Puts::default();
        puts.heads(heads, THIS, NOW);
        Self {
            heads: heads.iter().map(|head| (head.chain, *head)).collect(),
            away: BTreeSet::from([OTHER]),
            parting: BTreeSet::new(),
            week: 5,
            caught_up: true,
            puts,
        }
    }

    fn next(&mut self, now: Duration) -> Option<(Lane, u64)> {
        let view = View {
            heads: &self.heads,
            this: THIS,
            away: &self.away,
            parting: &self.parting,
            week: self.week,
            caught_up: self.caught_up,
        };
        self.puts.next_range(now, &view)
    }

    /// Puts all that is due, and gives the order of it.
    fn all(&mut self, now: Duration) -> Vec<(Lane, u64)> {
        let mut order = Vec::new();
        while let Some((lane, from)) = self.next(now) {
            let found = (from..=self.heads[&lane.chain].seq).map(mailed).collect();
            self.puts.ready(lane, found);
            while let Some((id, ..)) = self.puts.next_put(now) {
                assert!(self.puts.stored(id));
            }
            order.push((lane, from));
        }
        order
    }
}

fn mailed(upto: u64) -> Mailed {
    Mailed {
        upto,
        blob: Some((TopicId([7; 32]), vec![u8::try_from(upto).unwrap()])),
    }
}

#[test]
fn membership_and_what_a_person_waits_for_go_first() {
    let docs = [
        DocId::Box(BoxId([1; 16])),
        DocId::Node,
        DocId::Requests,
        DocId::Days,
        DocId::Keys,
        DocId::Notices,
        DocId::Account,
    ];
    let heads: Vec<Head> = docs.iter().map(|doc| head(*doc, THIS, 2)).collect();
    let mut world = World::new(&heads);
    let order: Vec<DocId> = world
        .all(NOW)
        .iter()
        .map(|(lane, _)| lane.chain.doc)
        .collect();
    let expected = [6, 4, 2, 5, 1, 3, 0].map(|at| docs[at]);
    assert_eq!(order, expected);
    assert_eq!(world.all(NOW), [], "nothing twice");
    world
        .heads
        .insert(chain(DocId::Node, THIS), head(DocId::Node, THIS, 3));
    let again = world.all(NOW);
    assert_eq!((again.len(), again[0].1), (1, 3), "only what is new");
}

#[test]
fn inboxes_are_for_who_is_away_and_whole_in_each_week() {
    let heads = [head(DocId::Account, THIRD, 4), head(DocId::Keys, THIS, 1)];
    let mut world = World::new(&heads);
    world.away = BTreeSet::from([OTHER, THIRD]);
    let lanes = |order: Vec<(Lane, u64)>| -> BTreeSet<(DocId, DeviceId, u64)> {
        let of = |(lane, from): (Lane, u64)| (lane.chain.doc, lane.to.unwrap().0, from);
        order.into_iter().map(of).collect()
    };
    let whole = BTreeSet::from([
        (DocId::Account, OTHER, 1),
        (DocId::Keys, OTHER, 1),
        (DocId::Keys, THIRD, 1),
    ]);
    assert_eq!(lanes(world.all(NOW)), whole, "its own it has");
    world.week = 6;
    assert_eq!(lanes(world.all(NOW)), whole);
    world.week = 7;
    world.away.clear();
    assert_eq!(world.all(NOW), [], "who is connected hears it there");
    world.parting.insert(OTHER);
    let account = BTreeSet::from([(DocId::Account, OTHER, 1)]);
    assert_eq!(lanes(world.all(NOW)), account, "and no keys");
}

#[test]
fn what_others_wrote_is_put_only_where_they_did_not() {
    let mut world = World::new(&[head(DocId::Node, OTHER, 3), head(DocId::Days, OTHER, 2)]);
    assert_eq!(world.all(NOW), []);
    world.puts.there(chain(DocId::Node, OTHER), 3);
    world.caught_up = false;
    assert_eq!(world.all(NOW + GRACE), []);
    world.caught_up = true;
    let order = world.all(NOW + GRACE);
    assert_eq!(order.len(), 1);
    assert_eq!(order[0].0.chain.doc, DocId::Days);
}

#[test]
fn a_refusal_holds_all_back_and_what_follows_it_is_put_again() {
    let mut world = World::new(&[head(DocId::Node, THIS, 3)]);
    let (lane, _) = world.next(NOW).unwrap();
    world.puts.ready(lane, (1..=3).map(mailed).collect());
    let ids: Vec<u64> = std::iter::from_fn(|| world.puts.next_put(NOW))
        .map(|put| put.0)
        .collect();
    assert_eq!(ids.len(), 3);
    assert!(world.puts.stored(ids[0]));
    assert_eq!(world.puts.refused(ids[1], Refusal::Full, NOW), FIRST_WAIT);
    assert!(
        !world.puts.stored(ids[2]),
        "it is of no use without the one before"
    );
    // A late answer of the same batch does not end the wait by itself.
    assert_eq!(world.puts.refused(99, Refusal::Full, NOW), FIRST_WAIT);
    assert_eq!(world.puts.refusal(), Some(Refusal::Full));
    assert_eq!(world.next(NOW), None);
    let later = NOW + FIRST_WAIT;
    let (lane, from) = world.next(later).unwrap();
    assert_eq!(from, 2);
    world.puts.ready(lane, (2..=3).map(mailed).collect());
    let (id, ..) = world.puts.next_put(later).unwrap();
    let wait = world.puts.refused(id, Refusal::Quota, later);
    assert_eq!(wait, FIRST_WAIT * 2);
    let mut at = later;
    for _ in 0..20 {
        at += LONGEST_WAIT;
        let (lane, _) = world.next(at).unwrap();
        world.puts.ready(lane, vec![mailed(2)]);
        let (id, ..) = world.puts.next_put(at).unwrap();
        assert!(world.puts.refused(id, Refusal::Quota, at) <= LONGEST_WAIT);
    }
}

#[test]
fn what_is_under_way_when_a_connection_ends_is_put_again() {
    let mut world = World::new(&[head(DocId::Node, THIS, 2)]);
    let (lane, _) = world.next(NOW).unwrap();
    world.puts.ready(lane, vec![mailed(1), mailed(2)]);
    let (first, ..) = world.puts.next_put(NOW).unwrap();
    assert!(world.puts.stored(first));
    let (second, ..) = world.puts.next_put(NOW).unwrap();
    world.puts.down();
    assert!(!world.puts.stored(second), "an answer of before");
    assert_eq!(world.next(NOW).unwrap().1, 2);
    world.puts.down();
    world.puts.lost();
    assert_eq!(world.next(NOW).unwrap().1, 1, "another store has nothing");
}

#[test]
fn what_an_earlier_start_had_put_is_not_put_again() {
    let heads = [head(DocId::Node, THIS, 4), head(DocId::Account, THIS, 2)];
    let mut world = World::new(&heads);
    assert_eq!(world.all(NOW).len(), 2);
    let view = View {
        heads: &world.heads,
        this: THIS,
        away: &world.away,
        parting: &world.parting,
        week: world.week,
        caught_up: true,
    };
    let done = world.puts.done(&view);
    assert_eq!(done.len(), 2);
    world.puts = Puts::resume(done);
    assert_eq!(world.all(NOW), []);
    world
        .heads
        .insert(chain(DocId::Node, THIS), head(DocId::Node, THIS, 5));
    assert_eq!(world.all(NOW)[0].1, 5);
}

#[test]
fn what_cannot_be_mailed_is_passed_over_in_its_order() {
    let mut world = World::new(&[head(DocId::Node, THIS, 4)]);
    let none = |upto| Mailed { upto, blob: None };
    let (lane, _) = world.next(NOW).unwrap();
    world
        .puts
        .ready(lane, vec![none(1), mailed(2), none(3), mailed(4)]);
    let (id, ..) = world.puts.next_put(NOW).unwrap();
    assert!(world.puts.next_put(NOW).is_none());
    assert_eq!(world.next(NOW), None, "one range of a lane at a time");
    assert!(world.puts.stored(id));
    let (lane, from) = world.next(NOW).unwrap();
    assert_eq!(from, 3);
    world.puts.ready(lane, vec![none(3)]);
    assert_eq!(world.next(NOW).unwrap().1, 4);
    world.puts.ready(lane, Vec::new());
    assert_eq!(
        world.next(NOW),
        None,
        "what is nowhere is not asked for for ever"
    );
}

#[test]
fn what_a_device_lacks_is_put_once_more() {
    let mut world = World::new(&[head(DocId::Node, THIS, 4), head(DocId::Keys, THIS, 2)]);
    assert_eq!(world.all(NOW).len(), 2);
    world.puts.lacks(OTHER, chain(DocId::Node, THIS), 2);
    world.puts.lacks(THIRD, chain(DocId::Keys, THIS), 0);
    let order = world.all(NOW);
    assert_eq!(order.len(), 1, "an inbox is of one device");
    assert_eq!(order[0].1, 3);
}

/// Puts the next of a lane, and gives its number.
fn put(world: &mut World, lane: Lane, from: u64, now: Duration) -> u64 {
    world.puts.ready(lane, vec![mailed(from)]);
    world.puts.next_put(now).unwrap().0
}

#[test]
fn a_full_topic_holds_up_its_own_lane_alone_and_requests_go_by_the_inboxes() {
    let docs = [DocId::Requests, DocId::Node, DocId::Days];
    let heads: Vec<Head> = docs.iter().map(|doc| head(*doc, THIS, 2)).collect();
    let mut world = World::new(&heads);
    world.away = BTreeSet::from([OTHER, THIRD]);
    let (lane, from) = world.next(NOW).unwrap();
    assert_eq!((lane.chain.doc, lane.to, from), (DocId::Requests, None, 1));
    let id = put(&mut world, lane, 1, NOW);
    let wait = world.puts.refused(id, Refusal::TopicQuota, NOW);
    assert_eq!(wait, FIRST_WAIT);
    assert_eq!(world.puts.refusal(), Some(Refusal::TopicQuota));
    assert!(!world.puts.is_held());
    // A late answer about the same lane changes nothing.
    world.puts.refused(99, Refusal::TopicQuota, NOW);
    let to = |(lane, from): &(Lane, u64)| (lane.chain.doc, lane.to, *from);
    let order: Vec<_> = world.all(NOW).iter().map(to).collect();
    let expected = [
        (DocId::Requests, Some((OTHER, 5)), 1),
        (DocId::Requests, Some((THIRD, 5)), 1),
        (DocId::Node, None, 1),
        (DocId::Days, None, 1),
    ];
    assert_eq!(order, expected);
    // What comes after goes both ways, the inbox first while the topic is waited for.
    let next = head(DocId::Requests, THIS, 3);
    world.heads.insert(next.chain, next);
    let order: Vec<_> = world.all(NOW).iter().map(to).collect();
    let expected = [OTHER, THIRD].map(|to| (DocId::Requests, Some((to, 5)), 3));
    assert_eq!(order, expected);
    let later = NOW + FIRST_WAIT;
    let (lane, from) = world.next(later).unwrap();
    assert_eq!((lane.to, from), (None, 1), "it is tried again");
    let id = put(&mut world, lane, 1, later);
    assert_eq!(
        world.puts.refused(id, Refusal::TopicQuota, later),
        FIRST_WAIT * 2
    );
    assert_eq!(world.next(later), None);
    let order = world.all(later + FIRST_WAIT * 2);
    assert_eq!(order.len(), 1, "there is room again");
    assert_eq!(world.puts.refusal(), None);
    let next = head(DocId::Requests, THIS, 4);
    world.heads.insert(next.chain, next);
    let order: Vec<_> = world.all(later).iter().map(to).collect();
    assert_eq!(order, [(DocId::Requests, None, 4)], "as before");
}

#[test]
fn a_word_that_is_refused_is_said_again_once_there_may_be_room() {
    let mut world = World::new(&[head(DocId::Node, THIS, 1)]);
    assert_eq!(world.all(NOW).len(), 1);
    world.puts.push_word(TopicId([8; 32]), vec![1]);
    let (id, ..) = world.puts.next_put(NOW).unwrap();
    let wait = world.puts.refused(id, Refusal::TopicQuota, NOW);
    assert!(world.puts.take_lost_word() && !world.puts.take_lost_word());
    assert!(!world.puts.takes_word(NOW) && world.puts.takes_word(NOW + wait));
    assert!(!world.puts.is_held());
    world.puts.push_word(TopicId([8; 32]), vec![1]);
    let (id, ..) = world.puts.next_put(NOW + wait).unwrap();
    assert!(!world.puts.stored(id));
    assert!(world.puts.takes_word(NOW));
}
