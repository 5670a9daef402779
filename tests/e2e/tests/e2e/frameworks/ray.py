"""A program outside of a Ray cluster, which has something computed on each node of it."""
import socket, sys, time

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

host, port, wanted = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])


def listens():
    try:
        socket.create_connection((host, port), timeout=5).close()
        return True
    except OSError:
        return False


while not listens():
    time.sleep(0.2)
ray.init(f"ray://{host}:{port}")
while len(nodes := [node for node in ray.nodes() if node["Alive"]]) < wanted:
    time.sleep(0.5)


@ray.remote(num_cpus=0)
def square(number):
    return number * number, socket.gethostname(), ray.get_runtime_context().get_node_id()


on = [NodeAffinitySchedulingStrategy(node["NodeID"], soft=False) for node in nodes]
results = ray.get([square.options(scheduling_strategy=place).remote(number) for number, place in enumerate(on)])
for number, (result, pod, ran_on) in enumerate(results):
    assert result == number * number and ran_on == nodes[number]["NodeID"], results
    print(f"pod={pod} node={ran_on} square={result}", flush=True)
