"""Stands in for programs whose pods only know their task's hosts and their own index: VC_<TASK>_HOSTS and VC_TASK_INDEX.

The first of them waits for all others, who each have to be welcomed by it. It does so at once, since they need not run together.
"""

import os

from peers import accept, call, listen, say

PORT = 4000

[hosts] = [value.split(",") for name, value in os.environ.items() if name.startswith("VC_") and name.endswith("_HOSTS")]
index = int(os.environ["VC_TASK_INDEX"])
if index == 0:
    server = listen(hosts[0], PORT)
    met = set()
    while len(met) < len(hosts) - 1:
        peer = accept(server)
        met.add(int(peer.readline()))
        say(peer, "welcome")
    assert met == set(range(1, len(hosts))), met
else:
    first = call(hosts[0], PORT)
    say(first, index)
    assert first.readline() == "welcome\n"
print("epoch 1 on", index, "of", len(hosts), flush=True)
