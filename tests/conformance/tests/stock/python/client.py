"""The stock Python client against the API server; run by python.rs with KUBECONFIG set."""

from kubernetes import client, config, watch
from kubernetes.client.rest import ApiException

config.load_kube_config()
core = client.CoreV1Api()
custom = client.CustomObjectsApi()
extensions = client.ApiextensionsV1Api()
JOBS = ("batch.volcano.sh", "v1alpha1", "default", "jobs")
QUEUES = ("scheduling.volcano.sh", "v1beta1", "queues")


def refused(code, call, *args, **kwargs):
    """Calls what must fail and gives the exception."""
    try:
        call(*args, **kwargs)
    except ApiException as error:
        assert error.status == code, (error.status, error.body)
        return error
    raise AssertionError(f"{call.__name__} was not refused with {code}")


def config_map(name, **data):
    return client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name, labels={"suite": "python"}), data=data)


def job(name):
    container = {"name": "main", "image": "busybox"}
    task = {"name": "work", "replicas": 2, "template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"minAvailable": 2, "schedulerName": "volcano", "tasks": [task]},
    }


def change(name, **data):
    """A dict is sent as a strategic merge patch, a list as a JSON patch."""
    return core.patch_namespaced_config_map(name, "default", {"data": {"$patch": "replace", **data}})


def core_objects():
    made = core.create_namespaced_config_map("default", config_map("a", x="1"))
    assert made.metadata.uid and made.metadata.resource_version
    refused(409, core.create_namespaced_config_map, "default", config_map("a"))
    made.data["y"] = "2"
    replaced = core.replace_namespaced_config_map("a", "default", made)
    assert replaced.data == {"x": "1", "y": "2"}
    refused(409, core.replace_namespaced_config_map, "a", "default", made)
    assert core.patch_namespaced_config_map("a", "default", {"data": {"z": "1"}}).data == {"x": "1", "y": "2", "z": "1"}
    assert core.patch_namespaced_config_map("a", "default", {"data": {"z": None}}).data == {"x": "1", "y": "2"}
    patch = [{"op": "remove", "path": "/data/y"}]
    assert core.patch_namespaced_config_map("a", "default", patch).data == {"x": "1"}
    listed = core.list_namespaced_config_map("default", label_selector="suite=python")
    assert [item.metadata.name for item in listed.items] == ["a"]
    assert core.list_config_map_for_all_namespaces(field_selector="metadata.name=a").items
    core.create_namespaced_secret("default", client.V1Secret(metadata={"name": "s"}, string_data={"k": "v"}))
    assert core.read_namespaced_secret("s", "default").data == {"k": "dg=="}
    container = client.V1Container(name="main", image="busybox", env=[client.V1EnvVar(name="A", value="1")])
    pod = client.V1Pod(metadata={"generateName": "p-"}, spec=client.V1PodSpec(containers=[container]))
    name = core.create_namespaced_pod("default", pod).metadata.name
    assert core.read_namespaced_pod_status(name, "default").status.phase == "Pending"
    gone = core.delete_namespaced_pod(name, "default", grace_period_seconds=0)
    assert gone.kind == "Pod"
    refused(404, core.read_namespaced_pod, name, "default")
    bad = client.V1Pod(metadata={"name": "bad"}, spec={"containers": []})
    assert "spec.containers" in refused(422, core.create_namespaced_pod, "default", bad).body
    assert core.delete_namespaced_config_map("a", "default").status == "Success"


def custom_objects():
    custom.create_cluster_custom_object(*QUEUES, {
        "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue",
        "metadata": {"name": "default"}, "spec": {"weight": 1},
    })
    made = custom.create_namespaced_custom_object(*JOBS, job("j"))
    assert made["spec"]["queue"] == "default", "defaults are filled in"
    listed = custom.list_namespaced_custom_object(*JOBS)
    assert [item["metadata"]["name"] for item in listed["items"]] == ["j"]
    patched = custom.patch_namespaced_custom_object(*JOBS, "j", {"metadata": {"labels": {"a": "b"}}})
    assert patched["metadata"]["labels"] == {"a": "b"}
    status = {"status": {"state": {"phase": "Running"}}}
    assert custom.patch_namespaced_custom_object_status(*JOBS, "j", status)["status"]["state"]["phase"] == "Running"
    scaled = custom.get_namespaced_custom_object(*JOBS, "j")
    scaled["spec"]["tasks"][0]["replicas"] = 3
    assert custom.replace_namespaced_custom_object(*JOBS, "j", scaled)["metadata"]["generation"] == 2
    wrong = job("wrong")
    wrong["spec"]["minAvailable"] = 7
    refused(400, custom.create_namespaced_custom_object, *JOBS, wrong)
    definition = extensions.read_custom_resource_definition("jobs.batch.volcano.sh")
    assert any(one.type == "Established" and one.status == "True" for one in definition.status.conditions)


def watches():
    listed = core.list_namespaced_config_map("default")
    core.create_namespaced_config_map("default", config_map("w1", x="1"))
    change("w1", x="2")
    core.delete_namespaced_config_map("w1", "default")
    seen, events = [], watch.Watch()
    revision = listed.metadata.resource_version
    for event in events.stream(core.list_namespaced_config_map, "default", resource_version=revision, timeout_seconds=10):
        seen.append((event["type"], event["object"].metadata.name))
        if event["type"] == "DELETED":
            events.stop()
    assert seen == [("ADDED", "w1"), ("MODIFIED", "w1"), ("DELETED", "w1")], seen
    quiet = watch.Watch().stream(core.list_namespaced_config_map, "default", resource_version=0, timeout_seconds=1)
    assert list(quiet) == [], "a timeout ends the stream"
    jobs = watch.Watch()
    for event in jobs.stream(custom.list_namespaced_custom_object, *JOBS, timeout_seconds=10):
        assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "j")
        jobs.stop()


def informer():
    """List, fall behind, watch into a 410, list again, go on: what every informer does."""
    old = core.list_namespaced_config_map("default").metadata.resource_version
    core.create_namespaced_config_map("default", config_map("i", n="0"))
    for number in range(20):
        change("i", n=str(number))
    events = watch.Watch().stream(core.list_namespaced_config_map, "default", resource_version=old, timeout_seconds=10)
    expired = refused(410, lambda: list(events))
    assert "too old resource version" in expired.reason, expired.reason
    listed = core.list_namespaced_config_map("default")
    cache = {item.metadata.name: item.data for item in listed.items}
    assert cache["i"] == {"n": "19"}
    change("i", n="end")
    follow, revision = watch.Watch(), listed.metadata.resource_version
    for event in follow.stream(core.list_namespaced_config_map, "default", resource_version=revision, timeout_seconds=10):
        cache[event["object"].metadata.name] = event["object"].data
        follow.stop()
    assert cache["i"] == {"n": "end"}


def deletes():
    custom.delete_namespaced_custom_object(*JOBS, "j", propagation_policy="Foreground")
    core.delete_collection_namespaced_config_map("default", label_selector="suite=python")
    assert not core.list_namespaced_config_map("default").items


for step in (core_objects, custom_objects, watches, informer, deletes):
    step()
print("all good")
