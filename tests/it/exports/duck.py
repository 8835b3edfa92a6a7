# A file of rows, by DuckDB: for each host its verdict, flows and bytes.
import json, sys
import duckdb

found = duckdb.sql(
    f"select dst_host, verdict, count(*)::int n, coalesce(sum(bytes_in), 0)::int down, "
    f"min(typeof(ts)) from '{sys.argv[1]}' where kind in ('flow', 'refused') "
    f"group by all order by all"
)
print(json.dumps(found.fetchall()))
