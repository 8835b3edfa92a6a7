"""One change chunk of Automerge, and what a segment lets it say (docs/entry.md)."""

from forms import Aside, sha256

MAX_ENTRIES = 4096
# Columns of operations: number << 4 | type.
OBJECT_ACTOR, OBJECT_COUNTER = 1, 2
KEY_ACTOR, KEY_COUNTER, KEY_TEXT = 17, 19, 21
INSERT, ACTION, VALUE_META, VALUE, PRED_COUNT = 52, 66, 86, 87, 112
MAKE_LIST, SET, BYTES = 2, 1, 7


class Bytes:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, count):
        part = self.data[self.at : self.at + count]
        if len(part) < count:
            raise Aside("change is cut")
        self.at += count
        return part

    def unsigned(self):
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def signed(self):
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value - (1 << shift) if byte & 0x40 else value

    def text(self):
        return self.take(self.unsigned())

    def left(self):
        return self.at < len(self.data)


def runs(data, item):
    """A run-length encoded column; `None` stands for null."""
    data, out = Bytes(data), []
    while data.left():
        count = data.signed()
        if count > 0:
            out += [item(data)] * count
        elif count < 0:
            out += [item(data) for _ in range(-count)]
        else:
            out += [None] * data.unsigned()
    return out


def deltas(data):
    total, out = 0, []
    for step in runs(data, Bytes.signed):
        if step is not None:
            total += step
        out.append(None if step is None else total)
    return out


def booleans(data):
    data, out, value = Bytes(data), [], False
    while data.left():
        out += [value] * data.unsigned()
        value = not value
    return out


def chunk(raw):
    """The hash and the content of exactly one change chunk."""
    data = Bytes(raw)
    if data.take(4) != b"\x85\x6f\x4a\x83":
        raise Aside("no change")
    checksum = data.take(4)
    start = data.at
    if data.take(1) != b"\1":
        raise Aside("no change")
    content = data.text()
    name = sha256(raw[start : data.at])
    if data.left() or name[:4] != checksum:
        raise Aside("no change")
    return name, content


class Segment:
    """How far the changes of a segment have come."""

    def __init__(self, writer, incarnation, document):
        self.actor = sha256(b"bailey/actor/v1\0", writer, incarnation, document)[:16]
        self.head, self.changes, self.ops = [], 0, 0

    def apply(self, hours, raw):
        """The entries that a change inserts."""
        name, content = chunk(raw)
        data = Bytes(content)
        deps = [data.take(32) for _ in range(data.unsigned())]
        actor, number, start = data.text(), data.unsigned(), data.unsigned()
        data.signed(), data.text()
        others = [data.text() for _ in range(data.unsigned())]
        specs = [(data.unsigned(), data.unsigned()) for _ in range(data.unsigned())]
        columns = {spec: data.take(length) for spec, length in specs}
        if actor != self.actor or others:
            raise Aside("actor")
        if (deps, number, start) != (self.head, self.changes + 1, self.ops + 1):
            raise Aside("order")
        if hours is not None and self.changes > 0:
            raise Aside("a window in the middle")
        entries = self.inserted(columns)
        self.head, self.changes = [name], self.changes + 1
        return entries

    def inserted(self, columns):
        def column(spec, read, count):
            values = read(columns[spec]) if spec in columns else []
            return values + [None] * (count - len(values))

        plain = lambda data: runs(data, Bytes.unsigned)
        actions = column(ACTION, plain, 0)
        count = len(actions)
        inserts = column(INSERT, booleans, count)
        objects = column(OBJECT_COUNTER, plain, count)
        texts = column(KEY_TEXT, lambda data: runs(data, Bytes.text), count)
        keys = column(KEY_COUNTER, deltas, count)
        metas = column(VALUE_META, plain, count)
        values = Bytes(columns.get(VALUE, b""))
        if any(column(PRED_COUNT, plain, count)):
            raise Aside("does more than append")
        entries, first = [], self.changes == 0
        for at in range(count):
            self.ops += 1
            if first and at == 0:
                makes = (actions[0], inserts[0], objects[0], texts[0])
                if makes != (MAKE_LIST, False, None, b"e"):
                    raise Aside("makes no list")
                continue
            # Behind the newest; the first behind the head of the list, which is 0.
            behind = 0 if self.ops == 2 else self.ops - 1
            place = (actions[at], inserts[at], objects[at], texts[at], keys[at])
            if place != (SET, True, 1, None, behind) or metas[at] & 15 != BYTES:
                raise Aside("does more than append")
            entries.append(values.take(metas[at] >> 4))
        if not entries or self.ops - 1 > MAX_ENTRIES or values.left():
            raise Aside("entries")
        return entries


def entry_number(packed):
    """The number of a packed entry; its version must be 1 (docs/entry.md)."""
    data = Bytes(packed)
    if data.take(1) != b"\1":
        raise Aside("entry")
    number = data.unsigned()
    data.unsigned(), data.unsigned()
    return number
