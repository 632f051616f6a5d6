"""What of the dns end-to-end tests runs by itself.

`test_dns_pods.py` runs whole clusters as pods on a kubelet of processes. It passes, but one run in about six hung for a
reason not yet found, and a test that may hang proves nothing to others: it runs only when it is asked for, with
STEERSMAN_PODS=1. CONTRIBUTING.md says so too.
"""

from __future__ import annotations

import os

collect_ignore = [] if os.environ.get("STEERSMAN_PODS") == "1" else ["test_dns_pods.py"]
