"""Uses a sandbox with nothing but a domain and a key, and prints what it saw."""

import json
import urllib.request

from e2b import Sandbox

sbx = Sandbox.create(timeout=300)
sbx.files.write("a.txt", "first")
stdout = sbx.commands.run("cat a.txt").stdout
signed = urllib.request.urlopen(sbx.download_url("a.txt")).read().decode()
print(json.dumps({"stdout": stdout, "signed": signed, "host": sbx.get_host(8080), "running": sbx.is_running()}))
sbx.kill()
