# EVE on stdin, through FEVER (Debian's `fever`), which parses each event into its own
# types and forwards what it understood. Prints the number of each type that came out.
import collections, json, os, queue, socket, subprocess, sys, tempfile, threading, time

lines = sys.stdin.read().splitlines()
folder = tempfile.mkdtemp()
into, out = os.path.join(folder, "in"), os.path.join(folder, "out")
sink = socket.socket(socket.AF_UNIX)
sink.bind(out)
sink.listen(1)
sink.settimeout(20)
fever = subprocess.Popen(
    ["fever", "run", "-i", into, "-o", out, "-T", "--dummy", "--mgmt-socket", os.path.join(folder, "mgmt"), "--logfile", os.path.join(folder, "log")],
    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
try:
    source = socket.socket(socket.AF_UNIX)
    for _ in range(400):
        try:
            source.connect(into)
            break
        except OSError:
            time.sleep(0.05)
    stream, _ = sink.accept()
    seen, events = collections.Counter(), []
    came = queue.Queue()
    threading.Thread(target=lambda: [came.put(json.loads(line)) for line in stream.makefile()], daemon=True).start()
    # It drops an event now and then, and always one that it does not understand.
    for line in lines:
        for _ in range(20):
            source.sendall(line.encode() + b"\n")
            try:
                event = came.get(timeout=0.5)
                while event["flow_id"] != json.loads(line)["flow_id"]:
                    event = came.get(timeout=0.5)
                events.append(event)
                break
            except queue.Empty:
                continue
        else:
            raise ValueError("not understood: " + line)
    for event in events:
        seen[event["event_type"]] += 1
    flows = {event["community_id"] for event in events if event["event_type"] == "flow"}
    print(json.dumps({"types": seen, "flows": sorted(flows)}))
except (TimeoutError, ValueError):
    print(open(os.path.join(folder, "log")).read())
    raise
finally:
    fever.kill()
    fever.wait()
