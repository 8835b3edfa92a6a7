"""Bytes and keys, as docs/wire.md and docs/membership.md have them."""

import hashlib
import hmac
import zlib

import nacl.bindings as sodium
from nacl.exceptions import CryptoError

MAX_ENVELOPE = 262_144
MAX_INFLATED = 1_048_576
HEADER = [
    ("magic", 4), ("version", 1), ("suite", 1), ("header length", 2), ("kind", 1),
    ("account", 32), ("document", 17), ("segment", 4), ("writer", 32),
    ("incarnation", 16), ("before", 16), ("seq", 8), ("prev", 32), ("epoch", 4),
    ("key id", 32), ("nonce", 24), ("plain length", 4), ("padded length", 4),
]
TOMBSTONE = [
    ("magic", 4), ("version", 1), ("account", 32), ("document", 17), ("writer", 32),
    ("incarnation", 16), ("signer", 32), ("segment", 4), ("first seq", 8), ("prev", 32),
    ("last seq", 8), ("last", 32), ("first no", 8), ("last no", 8), ("from", 8), ("to", 8),
    ("hours", 4), ("epoch", 4), ("key id", 32), ("made", 8),
]
NUMBERS = {
    "version", "suite", "header length", "kind", "segment", "seq", "epoch", "plain length",
    "padded length", "first seq", "last seq", "first no", "last no", "from", "to", "hours",
    "made",
}
ACCOUNT, KEYS = 1, 2
ROLES = {1: "runs", 2: "watch", 3: "stop", 4: "full"}


class Refused(Exception):
    """Not taken; says the class."""


class Aside(Exception):
    """In its place, and bad inside."""


def sha256(*parts):
    return hashlib.sha256(b"".join(parts)).digest()


def hkdf(salt, secret, info, length):
    prk = hmac.digest(salt, secret, "sha256")
    return expand(prk, info, length)


def expand(prk, info, length):
    out, block, count = b"", b"", 1
    while len(out) < length:
        block = hmac.digest(prk, block + info + bytes([count]), "sha256")
        out, count = out + block, count + 1
    return out[:length]


# Keys


class Public:
    def __init__(self, ed25519, x25519):
        self.ed25519, self.x25519 = ed25519, x25519
        self.id = sha256(ed25519, x25519)

    def is_weak(self):
        """Stricter than the standards: low order, or a second encoding."""
        below = int.from_bytes(self.x25519, "little") < 2**255 - 19
        try:
            sodium.crypto_scalarmult(b"\1" * 32, self.x25519)
        except (CryptoError, RuntimeError):
            return True
        return not below or not sodium.crypto_core_ed25519_is_valid_point(self.ed25519)

    def signed(self, domain, message, signature):
        # libsodium refuses s beyond the order, and A or R of low order.
        try:
            sodium.crypto_sign_open(signature + domain + message, self.ed25519)
        except CryptoError:
            return False
        return True


class Device:
    def __init__(self, secret):
        self.agreement = secret[32:]
        ed25519, _ = sodium.crypto_sign_seed_keypair(secret[:32])
        self.public = Public(ed25519, sodium.crypto_scalarmult_base(self.agreement))


def recovery(seed):
    seed = seed + bytes(32 - len(seed))
    return Device(hkdf(b"bailey/recovery/v1\0", seed, b"", 64))


def key_id(key):
    return sha256(b"bailey/keyid/v1\0", key)


def segment_key(key, document, segment):
    info = document + segment.to_bytes(4, "big")
    return hkdf(b"bailey/segment/v1\0", key, info, 32)


def hpke_open(device, enc, info, sealed, aad):
    """RFC 9180, base mode, the one message of a context; `None` if it does not open."""
    kem, suite = b"KEM\x00\x20", b"HPKE\x00\x20\x00\x01\x00\x03"

    def extract(suite, salt, label, secret):
        return hmac.digest(salt, b"HPKE-v1" + suite + label + secret, "sha256")

    def labeled(suite, prk, label, info, length):
        return expand(prk, length.to_bytes(2, "big") + b"HPKE-v1" + suite + label + info, length)

    try:
        agreed = sodium.crypto_scalarmult(device.agreement, enc)
    except (CryptoError, RuntimeError):
        return None
    prk = extract(kem, b"", b"eae_prk", agreed)
    shared = labeled(kem, prk, b"shared_secret", enc + device.public.x25519, 32)
    context = b"\0" + extract(suite, b"", b"psk_id_hash", b"")
    context += extract(suite, b"", b"info_hash", info)
    secret = extract(suite, shared, b"secret", b"")
    key = labeled(suite, secret, b"key", context, 32)
    nonce = labeled(suite, secret, b"base_nonce", context, 12)
    try:
        return sodium.crypto_aead_chacha20poly1305_ietf_decrypt(sealed, aad, nonce, key)
    except CryptoError:
        return None


# Postcard


class Input:
    """Reads; what is missing, left over or in more bytes than it needs is `class`."""

    def __init__(self, data, refused):
        self.data, self.at, self.refused = data, 0, refused

    def take(self, count):
        part = self.data[self.at : self.at + count]
        if len(part) < count:
            raise Refused(self.refused)
        self.at += count
        return part

    def byte(self):
        return self.take(1)[0]

    def number(self, bits=64):
        value, shift = 0, 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        if value >= 1 << bits or (byte == 0 and shift > 7):
            raise Refused(self.refused)
        return value

    def list(self, item, most):
        count = self.number()
        if count > most:
            raise Refused(self.refused)
        return [item() for _ in range(count)]

    def public(self):
        return Public(self.take(32), self.take(32))

    def role(self):
        role = self.byte()
        if role not in ROLES:
            raise Refused(self.refused)
        return role

    def end(self):
        if self.at != len(self.data):
            raise Refused(self.refused)


def postcard(*fields):
    """Numbers as varints, lists of bytes with their length, bytes as they are."""
    out = b""
    for field in fields:
        if isinstance(field, int):
            while field >= 0x80:
                out += bytes([field & 0x7F | 0x80])
                field >>= 7
            out += bytes([field])
        elif isinstance(field, list):
            out += postcard(len(field)) + b"".join(field)
        else:
            out += field
    return out


# Fixed layouts


def fixed(layout, data):
    fields, at = {}, 0
    for name, length in layout:
        part = data[at : at + length]
        fields[name] = int.from_bytes(part, "big") if name in NUMBERS else part
        at += length
    return fields


def is_document(document, crosses=True):
    kind, box = document[0], document[1:]
    kinds = range(1, 8) if crosses else [*range(1, 8), 32, 33]
    return kind in kinds and (kind in (6, 32) or box == bytes(16))


def padded(length):
    if length <= 64:
        return 64
    step = 1 << max(length.bit_length() - 1 - 3, 0)
    return -(-length // step) * step


def header(data):
    """The header of exactly one envelope."""
    if len(data) > MAX_ENVELOPE:
        raise Refused("large")
    if len(data) < 234:
        raise Refused("malformed")
    head = fixed(HEADER, data)
    plain, first = head["suite"] == 1, head["seq"] == 1
    before, none, kind = head["before"], bytes(32), head["kind"]
    sound = (
        head["magic"] == b"BLY\1"
        and head["version"] == 1
        and head["suite"] in (1, 2)
        and head["header length"] == 234
        and kind in (1, 2, 3, 4)
        and is_document(head["document"], crosses=False)
        and plain == (head["document"][0] in (ACCOUNT, KEYS)) == (kind == 4)
        and 0 < head["seq"] < 1 << 63
        and head["segment"] < 1 << 31
        and any(head["incarnation"])
        and before != head["incarnation"]
        and any(before) == (first and head["prev"] != none)
        and (first or head["prev"] != none)
        and plain == (head["epoch"] == 0)
        and (not plain or head["key id"] == none)
        and (not plain or head["nonce"] == bytes(24))
    )
    if not sound:
        raise Refused("malformed")
    want = head["plain length"] if plain else padded(head["plain length"])
    if head["padded length"] != want:
        raise Refused("malformed")
    length = 234 + want + (0 if plain else 16) + 64
    if length > MAX_ENVELOPE:
        raise Refused("large")
    if len(data) != length:
        raise Refused("malformed")
    return head


def verify(data, public):
    body = data[234:-64]
    message = data[:234] + sha256(body)
    weak = public.is_weak()
    if weak or not public.signed(b"bailey/env/v1\0", message, data[-64:]):
        raise Refused("signature")


def open_body(data, key):
    """The plaintext of a sealed envelope, under the key of an epoch."""
    head = header(data)
    assert key_id(key) == head["key id"]
    inner = segment_key(key, head["document"], head["segment"])
    try:
        plain = sodium.crypto_aead_xchacha20poly1305_ietf_decrypt(
            data[234:-64], data[:234], head["nonce"], inner
        )
    except CryptoError:
        raise Aside("does not open") from None
    if any(plain[head["plain length"] :]):
        raise Aside("padding")
    return plain[: head["plain length"]]


def tombstone(data):
    if len(data) != 362:
        raise Refused("malformed")
    it = fixed(TOMBSTONE, data)
    plain = it["document"][0] in (ACCOUNT, KEYS)
    sound = (
        it["magic"] == b"BLT\1"
        and it["version"] == 1
        and is_document(it["document"], crosses=False)
        and 0 < it["first seq"] <= it["last seq"] < 1 << 63
        and it["first no"] <= it["last no"] < 1 << 63
        and it["from"] <= it["to"]
        and (it["first seq"] == 1 or any(it["prev"]))
        and any(it["last"])
        and plain == (it["segment"] == 0) == (it["epoch"] == 0)
        and any(it["incarnation"])
    )
    if not sound:
        raise Refused("malformed")
    return it


# Records


def record(body, place):
    """An act of the account, its second signature checked in its place."""
    data = Input(body, "record")
    if data.byte() != 1:
        raise Refused("record")
    kind = data.byte()
    seen = data.list(lambda: data.take(32), 1024)
    second = data.take(64)
    content = body[data.at :]
    act = {"act": kind, "seen": seen}
    if kind == 1:
        act["recovery"], act["first"] = data.public(), data.public()
        data.number(16), data.take(16)
    elif kind == 2:
        act["device"], act["role"] = data.public(), data.role()
    elif kind == 3:
        act["device"], act["role"] = data.take(32), data.role()
    elif kind == 4:
        act["devices"] = data.list(lambda: data.take(32), 64)
    elif kind == 5:
        act["removal"] = data.take(32)
    elif kind == 6:
        act["kept"] = data.list(lambda: (data.public(), data.role()), 64)
        act["recovery"] = data.public()
    else:
        raise Refused("record")
    data.end()
    if not (is_sound(act, second) and cosigned(act, second, content, body, place)):
        raise Refused("record")
    return act


def is_sound(act, second):
    if act["act"] in (3, 4, 5) and any(second):
        return False
    if act["act"] == 4:
        return sorted(set(act["devices"])) == act["devices"] != []
    if act["act"] == 6:
        kept = [public.id for public, _ in act["kept"]]
        return len(set(kept)) == len(kept) > 0
    return True


def cosigned(act, second, content, body, place):
    """The second signature, and the keys that an act names."""
    named = [act[name] for name in ("recovery", "first") if name in act]
    named += [act["device"]] if act["act"] == 2 else []
    named += [public for public, _ in act.get("kept", [])]
    if any(public.is_weak() for public in named):
        return False
    account, writer = place["account"], place["writer"]
    where = postcard(place["incarnation"], place["seq"], place["prev"])
    if act["act"] == 1:
        first = place["seq"] == 1 and not any(place["prev"]) and not act["seen"]
        begun = sha256(b"bailey/account/v1\0", content)
        return (
            first
            and begun == account
            and act["first"].id == writer
            and act["recovery"].signed(b"bailey/genesis/v1\0", account, second)
        )
    if act["act"] == 2:
        device = act["device"]
        offer = account + writer + device.ed25519 + device.x25519 + bytes([act["role"]])
        offer += where + postcard(act["seen"])
        return device.signed(b"bailey/add/v1\0", offer, second)
    if act["act"] == 6:
        unsigned = body[:2] + postcard(act["seen"]) + bytes(64) + content
        bound = account + writer + where + unsigned
        return act["kept"][0][0].signed(b"bailey/reset/v1\0", bound, second)
    return True


def keys_record(body):
    """Membership, in postcard, and the wraps of a record of the keys' document."""
    data = Input(body, "keys")
    if data.byte() != 1:
        raise Refused("keys")
    kind = data.byte()
    if kind in (1, 3):
        data.number(32), data.take(32), data.number()
    if kind == 3 and data.number(32) == 0:
        raise Refused("keys")
    if kind not in (1, 2, 3):
        raise Refused("keys")
    membership = data.list(lambda: data.take(32), 1 << 20)

    def wrap():
        names = ("writer", "epoch", "key id", "recipient", "enc", "sealed")
        fields = data.take(32), data.number(32), *(data.take(n) for n in (32, 32, 32, 48))
        return dict(zip(names, fields))

    wraps = data.list(wrap, 512)
    data.end()
    return postcard(membership), wraps


def unwrap(device, account, membership, wrap):
    """The epoch key in a wrap for this device; `None` where there is none."""
    if wrap["recipient"] != device.public.id:
        return None
    info = b"bailey/wrap/v1" + account + wrap["writer"] + wrap["epoch"].to_bytes(4, "big")
    info += wrap["recipient"]
    key = hpke_open(device, wrap["enc"], info, wrap["sealed"], membership)
    return key if key and key_id(key) == wrap["key id"] else None


# What is in a sealed body


def change_of(body):
    """The window, where one is named, and the change chunk."""
    if len(body) < 2 or body[0] not in (1, 2):
        raise Aside("body")
    hours, rest = None, body[2:]
    if body[0] == 2:
        if len(rest) < 4:
            raise Aside("body")
        hours, rest = int.from_bytes(rest[:4], "big"), rest[4:]
    if body[1] == 0:
        return hours, rest
    if body[1] != 1:
        raise Aside("body")
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        change = inflater.decompress(rest, MAX_INFLATED + 1)
    except zlib.error:
        raise Aside("body") from None
    if len(change) > MAX_INFLATED:
        raise Aside("inflates")
    return hours, change
