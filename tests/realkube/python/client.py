"""What programs in Python do with the stock client, one behaviour a line on standard output: its name, a tab, and "yes" or what went
wrong. They work in the namespace of the kubeconfig that $KUBECONFIG names, which must be empty."""

import sys
import traceback

from kubernetes import client, config, dynamic, watch
from kubernetes.client.rest import ApiException

config.load_kube_config()
NAMESPACE = config.list_kube_config_contexts()[1]["context"]["namespace"]
core = client.CoreV1Api()
custom = client.CustomObjectsApi()
JOBS = ("batch.volcano.sh", "v1alpha1", NAMESPACE, "jobs")


def config_map(name, suite, **data):
    return client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name, labels={"suite": suite}), data=data)


def refused(code, call, *args, **kwargs):
    """Calls what must fail and gives the exception."""
    try:
        call(*args, **kwargs)
    except ApiException as error:
        assert error.status == code, (error.status, error.body)
        return error
    raise AssertionError(f"{call.__name__} was not refused with {code}")


def job(name):
    spec = {
        "restartPolicy": "Never",
        "nodeSelector": {"nowhere": "at-all"},
        "containers": [{"name": "main", "image": "none"}],
    }
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "minAvailable": 1,
            "schedulerName": "volcano",
            "tasks": [{"name": "w", "replicas": 1, "template": {"spec": spec}}],
        },
    }


def objects():
    made = core.create_namespaced_config_map(NAMESPACE, config_map("a", "objects", x="1"))
    made.data["y"] = "2"
    assert core.replace_namespaced_config_map("a", NAMESPACE, made).data == {"x": "1", "y": "2"}
    assert core.patch_namespaced_config_map("a", NAMESPACE, {"data": {"y": None}}).data == {"x": "1"}
    patch = [{"op": "add", "path": "/data/z", "value": "3"}]
    assert core.patch_namespaced_config_map("a", NAMESPACE, patch).data == {"x": "1", "z": "3"}
    listed = core.list_namespaced_config_map(NAMESPACE, label_selector="suite=objects")
    assert [item.metadata.name for item in listed.items] == ["a"]
    assert core.delete_namespaced_config_map("a", NAMESPACE).status == "Success"


def errors():
    stale = core.create_namespaced_config_map(NAMESPACE, config_map("b", "errors"))
    refused(409, core.create_namespaced_config_map, NAMESPACE, config_map("b", "errors"))
    core.replace_namespaced_config_map("b", NAMESPACE, config_map("b", "errors", x="1"))
    refused(409, core.replace_namespaced_config_map, "b", NAMESPACE, stale)
    refused(404, core.read_namespaced_config_map, "none", NAMESPACE)
    bad = client.V1Pod(metadata={"name": "bad"}, spec={"containers": []})
    assert "spec.containers" in refused(422, core.create_namespaced_pod, NAMESPACE, bad).body


def pages():
    for number in range(25):
        core.create_namespaced_config_map(NAMESPACE, config_map(f"page-{number}", "pages"))
    names, token = set(), None
    while token != "":
        page = core.list_namespaced_config_map(NAMESPACE, label_selector="suite=pages", limit=10, _continue=token)
        assert len(page.items) <= 10
        names.update(item.metadata.name for item in page.items)
        token = page.metadata._continue or ""
    assert len(names) == 25, names
    core.delete_collection_namespaced_config_map(NAMESPACE, label_selector="suite=pages")
    assert not core.list_namespaced_config_map(NAMESPACE, label_selector="suite=pages").items


def watches():
    since = core.list_namespaced_config_map(NAMESPACE).metadata.resource_version
    core.create_namespaced_config_map(NAMESPACE, config_map("w", "watches"))
    core.patch_namespaced_config_map("w", NAMESPACE, {"data": {"x": "1"}})
    core.delete_namespaced_config_map("w", NAMESPACE)
    told, stream = [], watch.Watch()
    select = {"label_selector": "suite=watches", "resource_version": since, "timeout_seconds": 30}
    for event in stream.stream(core.list_namespaced_config_map, NAMESPACE, **select):
        told.append(event["type"])
        if event["type"] == "DELETED":
            stream.stop()
    assert told == ["ADDED", "MODIFIED", "DELETED"], told


def custom_objects():
    made = custom.create_namespaced_custom_object(*JOBS, job("j"))
    assert made["spec"]["queue"] == "default", "defaults are filled in"
    patched = custom.patch_namespaced_custom_object(*JOBS, "j", {"metadata": {"labels": {"a": "b"}}})
    assert patched["metadata"]["labels"] == {"a": "b"}
    assert [item["metadata"]["name"] for item in custom.list_namespaced_custom_object(*JOBS)["items"]] == ["j"]
    custom.delete_namespaced_custom_object(*JOBS, "j")


def dynamic_client():
    maps = dynamic.DynamicClient(client.ApiClient()).resources.get(api_version="v1", kind="ConfigMap")
    wanted = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "d"}, "data": {"x": "1"}}
    for value in ("1", "2"):
        wanted["data"]["x"] = value
        maps.server_side_apply(body=wanted, name="d", namespace=NAMESPACE, field_manager="python", force_conflicts=True)
    assert maps.get(name="d", namespace=NAMESPACE).data.x == "2"


BEHAVIOURS = {
    "create, replace, patch, list by label, delete": objects,
    "errors have their codes and reasons": errors,
    "lists in pages, deletecollection": pages,
    "a watch tells what is added, changed and deleted": watches,
    "a Volcano Job by CustomObjectsApi": custom_objects,
    "the dynamic client, server-side apply": dynamic_client,
}

failed = False
for name, run in BEHAVIOURS.items():
    verdict = "yes"
    try:
        run()
    except Exception as error:
        failed = True
        verdict = repr(error).replace("\n", " ").replace("\t", " ")
        traceback.print_exc()
    print(f"{name}\t{verdict}")
sys.exit(failed)
