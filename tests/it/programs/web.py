"""HTTPS in the router's network: a git repository by git's own CGI, a blob, and
one package each for pip, npm and cargo. Arguments: port, folder, name of this
host. The folder has cert.pem, key.pem and repo.git."""

import base64, hashlib, http.server, io, json, os, socket, socketserver, ssl, subprocess, sys
import tarfile, zipfile

port, folder, host = int(sys.argv[1]), sys.argv[2], sys.argv[3]
base = f"https://{host}:{port}"


def wheel():
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as files:
        info = "greet-1.0.dist-info"
        files.writestr("greet.py", "print('hello from a wheel')\n")
        files.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: greet\nVersion: 1.0\n")
        files.writestr(
            f"{info}/WHEEL",
            "Wheel-Version: 1.0\nGenerator: us\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        files.writestr(f"{info}/RECORD", "")
    return out.getvalue()


def tarball(files):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(text), 0o644
            tar.addfile(entry, io.BytesIO(text.encode()))
    return out.getvalue()


def pages():
    """What is answered to GET: path, type, body."""
    whl = wheel()
    digest = hashlib.sha256(whl).hexdigest()
    name = "greet-1.0-py3-none-any.whl"
    yield "/blob", "application/octet-stream", bytes(1_000_000)
    yield "/simple/greet/", "text/html", (
        f'<!DOCTYPE html><a href="/{name}#sha256={digest}">{name}</a>'.encode()
    )
    yield f"/{name}", "application/octet-stream", whl
    manifest = {"name": "greet", "version": "1.0.0", "main": "greet.js"}
    tgz = tarball(
        {
            "package/package.json": json.dumps(manifest),
            "package/greet.js": "console.log('hello from a tarball')\n",
        }
    )
    integrity = "sha512-" + base64.b64encode(hashlib.sha512(tgz).digest()).decode()
    dist = {"tarball": f"{base}/npm/greet/-/greet-1.0.0.tgz", "integrity": integrity}
    about = {"name": "greet", "dist-tags": {"latest": "1.0.0"}}
    about["versions"] = {"1.0.0": {**manifest, "dist": dist}}
    yield "/npm/greet", "application/json", json.dumps(about).encode()
    yield "/npm/greet/-/greet-1.0.0.tgz", "application/octet-stream", tgz
    crate = tarball(
        {
            "greet-1.0.0/Cargo.toml": '[package]\nname = "greet"\nversion = "1.0.0"\nedition = "2021"\n',
            "greet-1.0.0/src/lib.rs": "//! hello from a crate\n",
        }
    )
    line = {"name": "greet", "vers": "1.0.0", "deps": [], "features": {}, "yanked": False}
    line["cksum"] = hashlib.sha256(crate).hexdigest()
    dl = {"dl": f"{base}/crates/{{crate}}-{{version}}.crate"}
    yield "/cargo/config.json", "application/json", json.dumps(dl).encode()
    yield "/cargo/gr/ee/greet", "text/plain", json.dumps(line).encode()
    yield "/crates/greet-1.0.0.crate", "application/octet-stream", crate


PAGES = {path: (kind, body) for path, kind, body in pages()}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status, kind, body):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.path.startswith("/git/"):
            return self.git(b"")
        kind, body = PAGES.get(self.path, ("text/plain", b"no such page\n"))
        self.answer(200 if self.path in PAGES else 404, kind, body)

    def do_POST(self):
        self.git(self.rfile.read(int(self.headers["Content-Length"])))

    def git(self, body):
        path, _, query = self.path.removeprefix("/git").partition("?")
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": folder,
            "GIT_PROJECT_ROOT": folder,
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "REQUEST_METHOD": self.command,
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
        }
        words = ["git", "http-backend"]
        said = subprocess.run(words, input=body, env=environment, stdout=subprocess.PIPE).stdout
        head, _, rest = said.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        status = int(fields.get("Status", "200").split()[0])
        self.answer(status, fields["Content-Type"], rest)

    def log_message(self, *words):
        pass


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    address_family, daemon_threads, request_queue_size = socket.AF_INET6, True, 64


context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
context.load_cert_chain(f"{folder}/cert.pem", f"{folder}/key.pem")
server = Server(("::", port), Handler)
# The handshake belongs to the connection's own thread.
server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
server.serve_forever()
