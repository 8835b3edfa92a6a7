//! Text that others chose, through everything that shows it.

use bailey_model::Timestamp;
use bailey_node::export::Format;
use bailey_node::rows::FlowRow;
use bailey_node::show;
use serde_json::Value;

/// Tabs of a line of each of Zeek's logs.
const ZEEK_TABS: [(Format, usize); 2] = [(Format::Zeek, 34), (Format::ZeekDns, 18)];

/// Any bytes as the name of a box, of a host, as a reason and a rule: for a terminal,
/// a printed command, and each format of an export.
pub(super) fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    terminal(data, &text);
    cells(&text);
    for kind in ["flow", "refused", "name", "gap"] {
        for proto in ["tcp", "dns"] {
            row(kind, proto, &text);
        }
    }
}

/// Nothing steers it: no C0, C1 or DEL, nothing that turns the direction of writing
/// or is not seen.
fn terminal(data: &[u8], text: &str) {
    let shown = [show::bytes(data), show::text(text), show::host(text)];
    let long = [
        show::shell_word(text),
        show::sentence(text),
        show::exact(text).0,
        show::exact_bytes(data).0,
    ];
    for shown in shown.iter().chain(&long) {
        assert!(is_clean(shown), "what steers a terminal passed: {shown:?}");
    }
    for shown in shown.iter().take(2) {
        assert!(shown.chars().count() <= 120, "{shown:?}");
    }
    assert!(
        show::lines(text)
            .chars()
            .all(|c| matches!(c, '\n' | '\t') || !show::is_unsafe(c))
    );
}

fn cells(text: &str) {
    let cell = show::csv_cell(text);
    let inner = cell.strip_prefix('"').unwrap_or(&cell);
    assert!(
        !inner.starts_with(['=', '+', '-', '@', '\t', '\r']),
        "{cell:?}"
    );
    assert!(is_clean(&cell), "{cell:?}");
    let quotes = cell.matches('"').count();
    assert!(
        quotes.is_multiple_of(2) && (cell.starts_with('"') || quotes == 0),
        "{cell:?}"
    );
    let field = show::zeek_field(text);
    assert!(
        field
            .bytes()
            .all(|byte| byte == b' ' || byte.is_ascii_graphic()),
        "{field:?}"
    );
    assert!(!field.is_empty() && field != "-", "{field:?}");
}

fn row(kind: &str, proto: &str, text: &str) {
    let ts = Timestamp(1_796_041_800_123);
    let mut row = FlowRow::note(text, ts, text);
    row.kind = kind.to_owned();
    row.proto = Some(proto.to_owned());
    for field in [
        &mut row.dst_host,
        &mut row.rule,
        &mut row.tls_sni,
        &mut row.end,
        &mut row.rcode,
    ] {
        *field = Some(text.to_owned());
    }
    for word in Format::WORDS {
        let format = Format::of(word).unwrap_or(Format::Ndjson);
        let Ok(Some(line)) = format.line(&row) else {
            continue;
        };
        let inner = line.trim_end_matches(['\r', '\n']);
        assert!(
            inner.chars().all(|c| c == '\t' || !show::is_unsafe(c)),
            "{word}: {line:?}"
        );
        let tabs = ZEEK_TABS.iter().find(|(of, _)| *of == format);
        let tabs = tabs.map_or(0, |(_, tabs)| *tabs);
        assert_eq!(inner.matches('\t').count(), tabs, "{word}: {line:?}");
        if inner.starts_with('{') {
            let value: Result<Value, _> = serde_json::from_str(inner);
            assert!(
                value.is_ok_and(|value| value.is_object()),
                "{word}: {line:?}"
            );
        }
    }
}

fn is_clean(text: &str) -> bool {
    !text.contains(show::is_unsafe)
}
