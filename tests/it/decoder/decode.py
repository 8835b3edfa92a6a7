"""A second reader of what devices keep and send, written from docs/wire.md,
docs/membership.md and docs/entry.md alone. Prints JSON.

    decode.py envelopes FILE    each opens or is refused (docs-store/envelope/vectors)
    decode.py taken FILE        what a device takes, in order (docs-store/tests/store)
    decode.py records FILE      records of every act (docs-store/src/account/tests)
"""

import json
import sys

import change
import forms
from forms import ACCOUNT, KEYS, Aside, Refused, sha256

FULL = 4
HOUR = 3_600_000
NOW = 1_796_000_000_000


def lines(path):
    with open(path) as file:
        return [line.rstrip("\n").split(" ") for line in file]


def envelopes(path):
    """One writer, one epoch; its keys are those of the file's generator."""
    writer = forms.Device(bytes(range(64)))
    said = {}
    for name, _, data in lines(path):
        data = bytes.fromhex(data)
        try:
            head = forms.header(data)
            if head["writer"] != writer.public.id:
                raise Refused("member")
            forms.verify(data, writer.public)
            if head["suite"] == 1:
                plain = data[234:-64]
            elif head["key id"] != forms.key_id(b"\x22" * 32):
                raise Aside("another key")
            else:
                plain = forms.open_body(data, b"\x22" * 32)
            said[name] = "opens:" + plain.hex()
        except (Refused, Aside):
            said[name] = "refused"
    return said


class Chain:
    def __init__(self):
        self.seq, self.hashes, self.segment, self.key_id = 0, {}, 0, None
        self.last, self.broken, self.content, self.last_no = None, None, None, 0


class Reader:
    def __init__(self, device, recovery, account):
        self.device, self.recovery, self.account = device, recovery, account
        self.members, self.ever, self.named = {}, {}, {}
        self.chains, self.keys, self.for_recovery = {}, {}, set()

    def take(self, data):
        if data[:4] == b"BLT\1":
            return self.take_tombstone(data)
        head = forms.header(data)
        if head["account"] != self.account:
            raise Refused("account")
        if not forms.is_document(head["document"]):
            raise Refused("malformed")
        public = self.writer_of(head, data)
        forms.verify(data, public)
        name = (head["document"], head["writer"], head["incarnation"])
        chain = self.chains.get(name) or Chain()
        if not self.is_next(chain, head, sha256(data)):
            return "again:"
        said = self.judge(name, chain, head, data)
        chain.seq, chain.last = head["seq"], sha256(data)
        chain.hashes[chain.seq] = chain.last
        chain.segment, chain.key_id = head["segment"], head["key id"]
        self.chains[name] = chain
        if isinstance(said, Aside):
            raise said
        return said

    def writer_of(self, head, data):
        if head["document"][0] != ACCOUNT:
            known = self.ever
        elif self.named:
            known = self.named
        else:
            act = forms.record(data[234:-64], head)
            known = {act["first"].id: act["first"]} if act["act"] == 1 else {}
        if head["writer"] not in known:
            raise Refused("member")
        return known[head["writer"]]

    def is_next(self, chain, head, name):
        seq = head["seq"]
        if seq <= chain.seq:
            if chain.hashes.get(seq, name) != name:
                raise Refused("fork")
            return False
        own = head["writer"] == self.device.public.id
        if own and head["incarnation"] == self.incarnation:
            raise Refused("misfit")
        if seq > chain.seq + 1:
            raise Refused("gap")
        if seq > 1 and head["prev"] != chain.last:
            raise Refused("fork")
        return True

    def judge(self, name, chain, head, data):
        kind, segment = head["document"][0], head["segment"]
        if kind in (ACCOUNT, KEYS):
            if segment != 0:
                raise Refused("misfit")
            body = data[234:-64]
            self.take_record(forms.record(body, head), head) if kind == ACCOUNT else (
                self.take_keys(body)
            )
            return "new:"
        if head["kind"] == 3 or not max(chain.segment, 1) <= segment <= 65_536:
            raise Refused("misfit")
        if segment == chain.segment and head["key id"] != chain.key_id:
            raise Refused("misfit")
        try:
            return self.read(name, chain, head, data)
        except Aside as aside:
            chain.broken = segment
            return aside

    def read(self, name, chain, head, data):
        document, writer, incarnation = name
        if chain.broken == head["segment"]:
            raise Aside("follows one that was set aside")
        key = self.keys.get((writer, head["key id"]))
        if key is None:
            return "waits:"
        hours, raw = forms.change_of(forms.open_body(data, key))
        if chain.content is None or chain.segment != head["segment"]:
            chain.content = change.Segment(writer, incarnation, document)
        entries = chain.content.apply(hours, raw)
        for entry in entries:
            number = change.entry_number(entry)
            if chain.last_no and number != chain.last_no + 1:
                raise Aside("entry out of number")
            chain.last_no = number
        return "new:" + ",".join(entry.hex() for entry in entries)

    def take_record(self, act, head):
        """M1 of docs/membership.md, where every record rests on all before it."""
        signer = head["writer"]
        for name in ("first", "device", "recovery"):
            if isinstance(act.get(name), forms.Public):
                self.named[act[name].id] = act[name]
        full = self.members.get(signer) == FULL
        if act["act"] == 1:
            self.add(act["first"], FULL)
        elif act["act"] == 2 and full:
            self.add(act["device"], act["role"])
        elif act["act"] == 3 and full:
            self.members[act["device"]] = act["role"]
        elif act["act"] == 4 and (full or act["devices"] == [signer]):
            for device in act["devices"]:
                self.members.pop(device, None)

    def add(self, public, role):
        self.members[public.id] = role
        self.ever[public.id] = public

    def take_keys(self, body):
        membership, wraps = forms.keys_record(body)
        for wrap in wraps:
            key = forms.unwrap(self.device, self.account, membership, wrap)
            if key:
                self.keys[wrap["writer"], wrap["key id"]] = key
            if forms.unwrap(self.recovery, self.account, membership, wrap):
                self.for_recovery.add(wrap["key id"])

    def take_tombstone(self, data):
        it = forms.tombstone(data)
        if it["account"] != self.account:
            raise Refused("account")
        if it["writer"] not in self.ever or it["signer"] not in self.ever:
            raise Refused("member")
        signer = self.ever[it["signer"]]
        if not signer.signed(b"bailey/tombstone/v1\0", data[:-64], data[-64:]):
            raise Refused("signature")
        if it["document"][0] == ACCOUNT:
            raise Refused("misfit")
        name = (it["document"], it["writer"], it["incarnation"])
        chain = self.chains.get(name) or Chain()
        if it["last seq"] <= chain.seq:
            return "again:"
        if it["first seq"] > chain.seq + 1:
            raise Refused("gap")
        if chain.seq and it["first seq"] == chain.seq + 1 and it["prev"] != chain.last:
            raise Refused("misfit")
        if NOW + 25 * HOUR < it["to"] + max(it["hours"], 24) * HOUR:
            raise Refused("early")
        chain.seq, chain.last, chain.segment = it["last seq"], it["last"], it["segment"]
        self.chains[name] = chain
        return "thinned:"


def taken(path):
    devices, reader, said = {}, None, []
    for kind, *words, data in lines(path):
        data = bytes.fromhex(data)
        if kind == "device":
            devices[words[0]] = forms.Device(data)
        elif kind == "seed":
            devices[words[0]] = forms.recovery(data)
        elif kind == "account":
            reader = Reader(devices["phone"], devices["recovery"], data)
        elif kind == "incarnation":
            reader.incarnation = data
        elif kind == "record":
            assert reader.take(data) == "new:", words
        else:
            try:
                said.append(f"take {words[0]} {reader.take(data)}")
            except Refused as refused:
                said.append(f"refuse {words[0]} {refused}")
            except Aside:
                said.append(f"aside {words[0]}")
    members = {
        name: forms.ROLES[reader.members[device.public.id]]
        for name, device in devices.items()
        if device.public.id in reader.members
    }
    return {
        "said": said,
        "members": members,
        "keys": sorted(key.hex() for _, key in reader.keys),
        "of recovery": sorted(key.hex() for key in reader.for_recovery),
    }


def records(path):
    """Each in its place, as the file's test has them, and one bit of it changed."""
    device = lambda number: forms.Device(bytes([number]) * 64).public
    places = {
        "genesis": (1, 1), "add": (1, 2), "role": (1, 3), "remove": (1, 4),
        "leave": (3, 1), "ack": (4, 1), "reset": (200, 1),
    }
    said, account = {}, None
    for name, data in lines(path):
        body = bytes.fromhex(data)
        if name == "genesis":
            account = sha256(b"bailey/account/v1\0", body[2 + 1 + 64 :])
        writer, seq = places[name]
        place = {
            "account": account, "writer": device(writer).id,
            "incarnation": bytes([writer]) * 16, "seq": seq,
            "prev": bytes(32) if seq == 1 else b"\x09" * 32,
        }
        act = forms.record(body, place)
        passed = 0
        # Within the second signature.
        start = 3 + 32 * len(act["seen"])
        for at in range(start, start + 64):
            changed = bytearray(body)
            changed[at] ^= 1
            try:
                forms.record(bytes(changed), place)
                passed += 1
            except Refused:
                pass
        roles = [act["role"]] if "role" in act else [role for _, role in act.get("kept", [])]
        said[name] = {
            "act": act["act"], "seen": len(act["seen"]), "passed": passed,
            "roles": [forms.ROLES[role] for role in roles],
            "devices": len(act.get("devices", [])),
        }
    return said


if __name__ == "__main__":
    command, path = sys.argv[1:]
    print(json.dumps({"envelopes": envelopes, "taken": taken, "records": records}[command](path)))
