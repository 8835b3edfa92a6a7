use std::os::unix::fs::PermissionsExt as _;

use super::*;

fn parse(text: &str) -> Result<Config, String> {
    Config::parse(text)
}

/// A folder that is gone at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("bailey-config-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, text: &str, mode: u32) {
        let file = self.0.join("config.toml");
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(file, std::fs::Permissions::from_mode(mode)).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn no_file_and_an_empty_one_say_the_same() {
    let folder = Folder::new("empty");
    let none = Config::load(&folder.0).unwrap();
    folder.write("", 0o600);
    assert_eq!(Config::load(&folder.0).unwrap(), none);
    assert_eq!(none.audit.window.span(), DAY * 30);
    assert_eq!(none.audit.durable, Durable::Soon);
    assert_eq!(none.keys.at_rest, AtRest::Auto);
    assert_eq!(none.metrics.listen, None);
    assert_eq!(none.sync.mailboxes, []);
}

#[test]
fn mailboxes_are_one_or_a_few() {
    let address = |n: char| format!("{}@mail.example:7000", n.to_string().repeat(64));
    let one = parse(&format!("[sync]\nmailbox = \"{}\"\n", address('a'))).unwrap();
    assert_eq!(one.sync.mailboxes, [address('a').parse().unwrap()]);
    let list = |keys: &str| {
        let all: Vec<String> = keys
            .chars()
            .map(|n| format!("\"{}\"", address(n)))
            .collect();
        parse(&format!("[sync]\nmailbox = [{}]\n", all.join(", ")))
    };
    assert_eq!(list("abcd").unwrap().sync.mailboxes.len(), 4);
    for (keys, said) in [("abcde", "more than 4"), ("aba", "twice")] {
        let error = list(keys).unwrap_err();
        assert!(
            error.starts_with("line 2") && error.contains(said),
            "{error}"
        );
    }
    let wrong = parse("[sync]\nmailbox = \"mail.example:7000\"\n").unwrap_err();
    assert!(
        wrong.starts_with("line 2") && wrong.contains("KEY@HOST:PORT"),
        "{wrong}"
    );
}

#[test]
fn a_box_has_its_own_window_and_others_the_nodes() {
    let config = parse(
        "[audit]\nwindow = \"60d\"\ndurable = \"each\"\n[audit.box.web]\nwindow = \"36h\"\n\
         [keys]\nat_rest = \"secret-service\"\n[metrics]\nlisten = \"[::1]:9464\"\n",
    )
    .unwrap();
    assert_eq!(config.audit.window_of("web").span(), DAY * 3 / 2);
    assert_eq!(config.audit.window_of("other").span(), DAY * 60);
    assert_eq!(config.audit.durable, Durable::Each);
    assert_eq!(config.keys.at_rest, AtRest::SecretService);
    assert!(config.metrics.listen.is_some());
}

#[test]
fn what_is_not_known_is_refused_with_its_place() {
    for (text, line) in [
        ("[audit]\nwindw = \"30d\"", "line 2"),
        ("\n\n[adit]\n", "line 3"),
        (
            "[audit.box.web]\nwindow = \"7d\"\ndurable = \"each\"",
            "line 3",
        ),
        ("[audit]\nwindow = 30", "line 2"),
        ("[audit]\nwindow = \"30\"", "line 2"),
        ("[audit]\nwindow = \"d\"", "line 2"),
        ("[audit]\nwindow = \"+30d\"", "line 2"),
        ("[audit]\nwindow = \"23h\"", "line 2"),
        ("[audit]\nwindow = \"3651d\"", "line 2"),
        ("[audit]\nwindow = \"99999999999999999999d\"", "line 2"),
        ("[audit]\ndurable = \"never\"", "line 2"),
        ("[metrics]\nlisten = \"0.0.0.0:9464\"", "line 2"),
        ("[audit]\nwindow = \"30d\"\nwindow = \"31d\"", "line 3"),
    ] {
        let error = parse(text).unwrap_err();
        assert!(
            error.starts_with(line) && !error.contains('\n'),
            "{text:?}: {error}"
        );
    }
}

#[test]
fn a_file_that_others_can_write_is_refused() {
    let folder = Folder::new("shared");
    folder.write("", 0o620);
    let refused = Config::load(&folder.0);
    assert!(
        matches!(refused, Err(ConfigError::Shared { mode: 0o620, .. })),
        "{refused:?}"
    );
}

#[test]
fn a_file_that_is_too_large_or_no_file_is_refused() {
    let folder = Folder::new("large");
    folder.write(&"#".repeat((64 << 10) + 1), 0o600);
    assert!(matches!(
        Config::load(&folder.0),
        Err(ConfigError::TooLarge { .. })
    ));
    std::fs::remove_file(folder.0.join("config.toml")).unwrap();
    std::fs::create_dir(folder.0.join("config.toml")).unwrap();
    assert!(matches!(
        Config::load(&folder.0),
        Err(ConfigError::Io { .. })
    ));
}
