# The same by Python, which is the C library's resolver and its own errors.
import socket, sys, time
for name in sys.argv[1:]:
    begun, found, code = time.monotonic(), [], 0
    try:
        for answer in socket.getaddrinfo(name, 80, type=socket.SOCK_STREAM):
            found.append(answer[4][0])
    except socket.gaierror as error:
        code = error.errno
    print(name, code, int((time.monotonic() - begun) * 1000), *found)
