"""Drives Chromium inside a box over its debugging pipe: JSON, a NUL after each
message, on the descriptors 3 (to it) and 4 (from it). Says a line of JSON for
each thing that it found, then waits for the end of its input."""

import json, os, select, subprocess, sys, time

LIMIT = 120.0


def say(what, value):
    print(json.dumps({"what": what, "value": value}), flush=True)


class Browser:
    def __init__(self, words):
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        # Out of the way of 3 and 4, in whatever order the pipes came.
        theirs_in, theirs_out = (fcntl_high(fd) for fd in (theirs_in, theirs_out))

        def place():
            os.dup2(theirs_in, 3)
            os.dup2(theirs_out, 4)

        self.child = subprocess.Popen(
            words, preexec_fn=place, close_fds=False, stdin=subprocess.DEVNULL, stdout=2
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self.out, self.into, self.rest, self.last = ours_out, ours_in, b"", 0

    def receive(self, until):
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.into], [], [], max(0, until - time.time()))
            if not ready:
                raise TimeoutError
            some = os.read(self.into, 1 << 20)
            if not some:
                raise EOFError("the browser ended: %s" % self.child.wait())
            self.rest += some
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def ask(self, method, params=None, session=None):
        self.last += 1
        message = {"id": self.last, "method": method, "params": params or {}}
        if session:
            message["sessionId"] = session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        until = time.time() + LIMIT
        while True:
            said = self.receive(until)
            if said.get("id") == self.last:
                if "error" in said:
                    raise RuntimeError(said["error"])
                return said["result"]


def fcntl_high(fd):
    import fcntl

    high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 64)
    os.close(fd)
    return high


class Page:
    def __init__(self, browser):
        self.browser = browser
        target = browser.ask("Target.createTarget", {"url": "about:blank"})
        attached = browser.ask(
            "Target.attachToTarget", {"targetId": target["targetId"], "flatten": True}
        )
        self.session = attached["sessionId"]

    def go(self, url):
        return self.browser.ask("Page.navigate", {"url": url}, self.session).get("errorText")

    def value(self, expression):
        result = self.browser.ask(
            "Runtime.evaluate", {"expression": expression, "returnByValue": True}, self.session
        )
        return result["result"].get("value")

    def wait(self, expression, wanted):
        until = time.time() + LIMIT
        while True:
            value = self.value(expression)
            if wanted(value) or time.time() > until:
                return value
            time.sleep(0.1)


TEXT = "document.body ? document.body.innerText : ''"
RENDERER = """(() => {
  const gl = document.createElement('canvas').getContext('webgl');
  if (!gl) return 'no WebGL';
  const names = gl.getExtension('WEBGL_debug_renderer_info');
  return gl.getParameter(names ? names.UNMASKED_RENDERER_WEBGL : gl.RENDERER);
})()"""

SPEAK = """(() => {
  const said = window.said = {}, begun = performance.now(), parts = ['one', 'x'.repeat(70000)];
  fetch('/bytes/100000').then(answer => answer.arrayBuffer())
    .then(body => said.fetched = body.byteLength, fault => said.fetched = String(fault));
  const socket = new WebSocket('wss://live.example/');
  let heard = 0;
  socket.onopen = () => parts.forEach(part => socket.send(part));
  socket.onerror = () => said.socket = 'error';
  socket.onmessage = message => {
    if (message.data !== parts[heard++]) said.socket = 'otherwise';
    else if (heard === parts.length) { said.socket = 'the same'; socket.close(); }
  };
  const other = new WebSocket('wss://third.example/');
  other.onopen = () => said.other = 'open';
  other.onerror = () => said.other = performance.now() - begun;
})()"""

page_url, lan_url, words = sys.argv[1], sys.argv[2], sys.argv[3:]
browser = Browser(words)
say("version", browser.ask("Browser.getVersion")["product"])
page = Page(browser)
say("refused", page.go(lan_url))
page.go("chrome://sandbox")
say("sandbox", page.wait(TEXT, lambda text: "sandboxed" in (text or "")))
page.go(page_url)
say("page", page.wait(TEXT, bool))
page.value(SPEAK)
say("spoke", page.wait("window.said", lambda said: len(said) == 3))
say("renderer", page.value(RENDERER))
page.value("document.body.style.background = 'rgb(10, 200, 30)'")
say("drawn", page.value("[innerWidth, innerHeight]"))
sys.stdin.read()
browser.ask("Browser.close")
say("end", browser.child.wait(60))
