# A Zeek log on stdin, by parsezeeklogs: its name, its records, and the lines that it
# could not read, as one JSON object.
import io, json, sys
from parsezeeklogs import ZeekLog

bad = []
log = ZeekLog(io.StringIO(sys.stdin.read()), on_error=lambda *error: bad.append(str(error)))
records = list(log)
print(json.dumps({"path": log.path, "types": log.types, "records": records, "bad": bad}))
