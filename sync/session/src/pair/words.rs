//! The words that both screens show.

/// 256 common English words, any two of which differ in at least two letters:
/// four of them are 32 bits.
#[rustfmt::skip]
pub const WORDS: [&str; 256] = [
    "acorn", "alarm", "album", "amber", "anchor", "angle", "apple", "apron", "arrow", "atlas",
    "attic", "axle", "bacon", "badge", "bagel", "baker", "bamboo", "banjo", "barrel", "basin",
    "basket", "beach", "beaver", "beetle", "berry", "bishop", "blanket", "bonfire", "bottle",
    "bridge", "broom", "bucket", "bugle", "bundle", "butter", "button", "cabin", "cactus",
    "camel", "candle", "canyon", "carpet", "castle", "cedar", "cement", "cherry", "chimney",
    "cider", "cinema", "circus", "clover", "cobalt", "cobra", "coconut", "coffee", "comet",
    "copper", "coral", "cotton", "cousin", "cradle", "crayon", "cricket", "crystal", "cupboard",
    "curtain", "cymbal", "daisy", "dancer", "dentist", "desert", "diamond", "dinner", "dolphin",
    "donkey", "dragon", "drummer", "dungeon", "eagle", "easel", "echo", "elbow", "elephant",
    "engine", "envelope", "falcon", "farmer", "feather", "fennel", "fiddle", "finger", "flannel",
    "flute", "forest", "fossil", "fountain", "galaxy", "garlic", "gecko", "geyser", "giraffe",
    "glacier", "goblet", "gorilla", "granite", "grotto", "guitar", "hammer", "harbor", "hazel",
    "hedge", "helmet", "heron", "hockey", "honey", "hornet", "husky", "iceberg", "igloo",
    "indigo", "insect", "island", "ivory", "jacket", "jaguar", "jasmine", "jelly", "jigsaw",
    "jungle", "kayak", "kettle", "kidney", "kitchen", "kiwi", "koala", "ladder", "lagoon",
    "lantern", "lemon", "leopard", "lettuce", "lilac", "linen", "lobster", "lumber", "lunch",
    "magnet", "mammoth", "mango", "marble", "meadow", "melon", "mermaid", "mirror", "mitten",
    "mosaic", "muffin", "mustard", "napkin", "needle", "nickel", "noodle", "nugget", "nutmeg",
    "oasis", "ocean", "octopus", "olive", "onion", "orchid", "otter", "oyster", "paddle",
    "palace", "panda", "parrot", "pebble", "pelican", "pencil", "pepper", "piano", "pickle",
    "pigeon", "pillow", "pirate", "planet", "pocket", "poem", "pony", "poppy", "prairie",
    "pretzel", "pumpkin", "puzzle", "pyramid", "quarry", "quilt", "rabbit", "raccoon", "radish",
    "raven", "ribbon", "river", "robin", "rooster", "ruby", "salmon", "sandal", "sapphire",
    "scarf", "seagull", "shovel", "silver", "siren", "skunk", "slipper", "snail", "sofa",
    "spider", "squirrel", "sugar", "summit", "sunset", "swan", "syrup", "table", "tadpole",
    "teapot", "temple", "thimble", "ticket", "tiger", "toast", "tomato", "trumpet", "tulip",
    "turtle", "umbrella", "uncle", "unicorn", "valley", "vanilla", "velvet", "violin", "volcano",
    "waffle", "wagon", "walnut", "walrus", "whale", "window", "wizard", "yacht", "yogurt",
    "zebra", "zipper",
];
