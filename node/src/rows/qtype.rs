//! Kinds of records by name.

/// The name of a record type (RFC 1035 and IANA's registry), else by its number
/// (RFC 3597).
pub(super) fn qtype_text(qtype: u16) -> String {
    let name = match qtype {
        1 => "A",
        2 => "NS",
        5 => "CNAME",
        6 => "SOA",
        12 => "PTR",
        13 => "HINFO",
        15 => "MX",
        16 => "TXT",
        28 => "AAAA",
        33 => "SRV",
        35 => "NAPTR",
        43 => "DS",
        48 => "DNSKEY",
        52 => "TLSA",
        64 => "SVCB",
        65 => "HTTPS",
        257 => "CAA",
        other => return format!("TYPE{other}"),
    };
    name.to_owned()
}
