"""A client of the X protocol (version 11, little-endian): one red window on the
display of its environment, then shell commands from its input, one a line."""

import os, socket, struct, subprocess, sys

number = os.environ["DISPLAY"].removeprefix(":")
server = socket.socket(socket.AF_UNIX)
server.connect("/tmp/.X11-unix/X" + number)


def read(count):
    data = b""
    while len(data) < count:
        some = server.recv(count - len(data))
        if not some:
            sys.exit("the display ended")
        data += some
    return data


server.sendall(struct.pack("<cxHHHHxx", b"l", 11, 0, 0, 0))
status, _, _, _, length = struct.unpack("<BBHHH", read(8))
setup = read(length * 4)
assert status == 1, setup
identity, = struct.unpack_from("<I", setup, 4)
vendor, = struct.unpack_from("<H", setup, 16)
formats = setup[21]
screen = 32 + (vendor + 3) // 4 * 4 + 8 * formats
root, = struct.unpack_from("<I", setup, screen)
# CreateWindow at 100,50 with 300x200 and a background, MapWindow, and a
# question (GetInputFocus) whose answer comes after both.
server.sendall(
    struct.pack(
        "<BBHIIhhHHHHIII", 1, 0, 9, identity, root, 100, 50, 300, 200, 0, 1, 0, 2, 0xFF0000
    )
    + struct.pack("<BBHI", 8, 0, 2, identity)
    + struct.pack("<BBH", 43, 0, 1)
)
read(32)
print("drawn", flush=True)
for line in sys.stdin:
    subprocess.run(["sh", "-c", line], stdout=1)
    print("done", flush=True)
