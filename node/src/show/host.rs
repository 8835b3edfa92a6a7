//! Names of hosts for a person.

use unicode_script::{Script, ScriptExtension, UnicodeScript as _};

use super::{COLUMNS, escaped, is_unsafe};

/// A host for a terminal: its A-labels in lower case; after them, where every
/// label is of one script, how it reads. What is too long loses its beginning, the
/// registrable domain never a part.
#[must_use]
pub fn host(raw: &str) -> String {
    let name = escaped(&raw.to_ascii_lowercase(), &is_unsafe);
    let shown = cut(&name);
    match reading(&name) {
        Some(reading) if reading.chars().count() + shown.chars().count() + 3 <= COLUMNS => {
            format!("{shown} ({reading})")
        }
        _ => shown,
    }
}

/// The name in Unicode, where that is another, comes back to the same name, and
/// mixes no scripts within a label.
fn reading(name: &str) -> Option<String> {
    if !name.split('.').any(|label| label.starts_with("xn--")) {
        return None;
    }
    let (text, fault) = idna::domain_to_unicode(name);
    fault.ok()?;
    let same = idna::domain_to_ascii(&text).is_ok_and(|back| back == name);
    let clean = !text.contains(is_unsafe) && text.split('.').all(is_single_script);
    (same && clean && text != name).then_some(text)
}

/// UTS 39 section 5.1, for what Japanese mixes too.
fn is_single_script(label: &str) -> bool {
    let japanese = [Script::Han, Script::Hiragana, Script::Katakana];
    let of_japan = |c: char| {
        let scripts = c.script_extension();
        scripts.is_common()
            || japanese
                .iter()
                .any(|script| scripts.contains_script(*script))
    };
    !ScriptExtension::for_str(label).is_empty() || label.chars().all(of_japan)
}

fn cut(name: &str) -> String {
    let count = name.chars().count();
    if count <= COLUMNS {
        return name.to_owned();
    }
    let domain = psl::domain_str(name).map_or(0, |domain| domain.chars().count());
    let tail = domain.max(COLUMNS / 2).min(count);
    let head = COLUMNS.saturating_sub(tail + 1);
    let head: String = name.chars().take(head).collect();
    let tail: String = name.chars().skip(count - tail).collect();
    format!("{head}…{tail}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_name_reads_as_written_only_where_no_label_mixes_scripts() {
        for (name, shown) in [
            ("Shop.Example", "shop.example"),
            (
                "xn--e1afmkfd.example",
                "xn--e1afmkfd.example (пример.example)",
            ),
            (
                "xn--mnchen-3ya.example",
                "xn--mnchen-3ya.example (münchen.example)",
            ),
            // Kanji and kana.
            (
                "xn--eckwd4c7cu47r2wf.jp",
                "xn--eckwd4c7cu47r2wf.jp (ドメイン名例.jp)",
            ),
            // A Latin word with a Cyrillic letter.
            ("xn--pypal-4ve.example", "xn--pypal-4ve.example"),
            ("xn--999999999.example", "xn--999999999.example"),
            ("a\u{202e}b.example", "a\\u{202e}b.example"),
        ] {
            assert_eq!(host(name), shown);
        }
    }

    #[test]
    fn a_long_name_keeps_its_registrable_domain_whole() {
        let name = format!("{}.secrets.co.uk", vec!["a".repeat(50); 4].join("."));
        let shown = host(&name);
        assert_eq!(shown.chars().count(), COLUMNS);
        assert!(shown.ends_with(".secrets.co.uk") && shown.starts_with("aaa"));
        let domain = format!("{}.s3.dualstack.us-east-1.amazonaws.com", "b".repeat(63));
        let shown = host(&format!("{}.{domain}", "a".repeat(60)));
        assert!(shown.ends_with(&domain), "{shown}");
    }

    proptest! {
        #[test]
        fn no_host_steers_a_terminal(raw in any::<String>()) {
            prop_assert!(!host(&raw).contains(is_unsafe));
        }

        #[test]
        fn no_registrable_domain_is_cut(
            labels in proptest::collection::vec("[a-z]{1,63}", 1..4),
            suffix in prop_oneof![Just("example"), Just("co.uk"), Just("github.io")],
        ) {
            let name = format!("{}.{suffix}", labels.join("."));
            let domain = format!("{}.{suffix}", labels.last().unwrap());
            prop_assert!(host(&name).ends_with(&domain));
        }
    }
}
