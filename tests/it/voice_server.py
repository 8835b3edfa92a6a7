"""A server as a voice assistant has it: a page on a port, and two WebSockets
outwards, over TLS and by name, on which it sends and hears at the same time."""

import base64, http.server, json, os, select, socket, ssl, struct, threading, time

HEARD = {'live.example': 0, 'realtime.example': 0}
SENT = dict(HEARD)
FAULTS = []


def connect(name):
    """A WebSocket (RFC 6455); certificates are checked as ever."""
    raw = socket.create_connection((name, 443), 5)
    stream = ssl.create_default_context().wrap_socket(raw, server_hostname=name)
    key = base64.b64encode(os.urandom(16)).decode()
    stream.sendall(
        f'GET / HTTP/1.1\r\nHost: {name}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n'
        f'Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n'.encode())
    head = b''
    while not head.endswith(b'\r\n\r\n'):
        head += stream.recv(1)
    assert head.startswith(b'HTTP/1.1 101 '), head
    stream.setblocking(False)
    return stream


def frame(number):
    return struct.pack('>Q', number) * 100  # 20 ms of sound, about


def talk(name, stream):
    data, mask = frame(SENT[name]), os.urandom(4)
    masked = bytes(octet ^ mask[at % 4] for at, octet in enumerate(data))
    stream.sendall(struct.pack('>BBH', 0x82, 0x80 | 126, len(data)) + mask + masked)
    SENT[name] += 1


def hear(name, got):
    """Takes whole frames from what came, and gives back the rest."""
    while len(got) >= 4:
        kind, length, long = struct.unpack('>BBH', got[:4])
        assert (kind, length) == (0x82, 126), (kind, length)
        if len(got) < 4 + long:
            break
        assert got[4:4 + long] == frame(HEARD[name]), HEARD[name]
        got = got[4 + long:]
        HEARD[name] += 1
    return got


def converse(name, stream):
    """Talks each 20 ms and hears in between. One thread does both: until
    Python 3.13 a read and a write at the same time can take each other's
    outcome, and the read then reports an end that never came."""
    due, got = time.monotonic(), b''
    while True:
        wait = due - time.monotonic()
        if wait <= 0:
            talk(name, stream)
            due += 0.02
        elif stream.pending() or select.select([stream], [], [], wait)[0]:
            try:
                part = stream.recv(1 << 16)
            except ssl.SSLWantReadError:
                continue
            if not part:
                raise EOFError('closed')
            got = hear(name, got + part)


def guarded(name, stream):
    try:
        converse(name, stream)
    except Exception as error:
        FAULTS.append(f'{name}: {error!r}')


class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == '/state':
            body = json.dumps({'sent': SENT, 'heard': HEARD, 'faults': FAULTS})
        elif self.path == '/third':
            try:
                connect('third.example').close()
                body = 'connected'
            except Exception as error:
                body = f'refused: {error!r}'
        else:
            body = 'the page\n'
        self.send_response(200)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *words):
        pass


for name in HEARD:
    threading.Thread(target=guarded, args=(name, connect(name)), daemon=True).start()
page = http.server.ThreadingHTTPServer(('127.0.0.1', 8080), Page)
print('listening', sorted(word for word in os.environ if 'proxy' in word.lower()), flush=True)
page.serve_forever()
