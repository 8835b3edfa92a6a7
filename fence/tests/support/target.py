# Waits to be attached to. Where only children may be traced, it permits all.
import ctypes, sys, time
libc=ctypes.CDLL(None)
PR_SET_DUMPABLE, PR_SET_PTRACER = 4, 0x59616d61
libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)
libc.prctl(PR_SET_PTRACER, ctypes.c_ulong(-1), 0, 0, 0)
print('ready', flush=True)
time.sleep(600)
