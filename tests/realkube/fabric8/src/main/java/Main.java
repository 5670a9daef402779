import io.fabric8.kubernetes.api.model.ConfigMap;
import io.fabric8.kubernetes.api.model.ConfigMapBuilder;
import io.fabric8.kubernetes.api.model.GenericKubernetesResource;
import io.fabric8.kubernetes.api.model.PodBuilder;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import io.fabric8.kubernetes.client.KubernetesClientException;
import io.fabric8.kubernetes.client.Watcher;
import io.fabric8.kubernetes.client.WatcherException;
import io.fabric8.kubernetes.client.dsl.NonDeletingOperation;
import io.fabric8.kubernetes.client.dsl.base.PatchContext;
import io.fabric8.kubernetes.client.dsl.base.PatchType;
import io.fabric8.kubernetes.client.informers.ResourceEventHandler;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/**
 * What programs in Java do with fabric8's client, one behaviour a line on standard output: its name, a tab, and "yes" or what
 * went wrong. It works in the namespace of the kubeconfig that $KUBECONFIG names, which must be empty.
 */
public final class Main {
  /** Longest wait for something to be told, in seconds. */
  private static final int PATIENCE = 30;

  private interface Behaviour {
    void run(KubernetesClient client) throws Exception;
  }

  public static void main(String[] arguments) {
    Map<String, Behaviour> behaviours = new LinkedHashMap<>();
    behaviours.put("create, get, list by label, delete", Main::objects);
    behaviours.put("what is there already is a conflict", Main::conflict);
    behaviours.put("a watch tells what is added, changed and deleted", Main::watch);
    behaviours.put("an informer holds what is there", Main::informer);
    behaviours.put("edit, patch, server-side apply", Main::changes);
    behaviours.put("a Volcano Job without a class for it", Main::custom);
    behaviours.put("waits until a condition holds", Main::waits);
    boolean failed = false;
    try (KubernetesClient client = new KubernetesClientBuilder().build()) {
      for (Map.Entry<String, Behaviour> each : behaviours.entrySet()) {
        String verdict = "yes";
        try {
          each.getValue().run(client);
        } catch (Exception | AssertionError error) {
          failed = true;
          verdict = String.valueOf(error).replace('\n', ' ').replace('\t', ' ');
          error.printStackTrace();
        }
        System.out.println(each.getKey() + "\t" + verdict);
      }
    }
    System.exit(failed ? 1 : 0);
  }

  private static ConfigMap map(String name, String suite) {
    return new ConfigMapBuilder().withNewMetadata().withName(name).addToLabels("suite", suite).endMetadata()
        .addToData("a", "1").build();
  }

  private static void same(Object found, Object wanted) {
    if (!wanted.equals(found)) {
      throw new AssertionError(found + ", not " + wanted);
    }
  }

  private static void objects(KubernetesClient client) {
    ConfigMap made = client.resource(map("one", "objects")).create();
    same(client.configMaps().withName("one").get().getMetadata().getUid(), made.getMetadata().getUid());
    client.resource(map("other", "others")).create();
    List<ConfigMap> listed = client.configMaps().withLabel("suite", "objects").list().getItems();
    same(listed.stream().map(each -> each.getMetadata().getName()).toList(), List.of("one"));
    same(client.configMaps().withName("one").delete().size(), 1);
    same(client.configMaps().withName("one").get() == null, true);
  }

  private static void conflict(KubernetesClient client) {
    client.resource(map("taken", "conflict")).create();
    try {
      client.resource(map("taken", "conflict")).create();
    } catch (KubernetesClientException refused) {
      same(refused.getCode(), 409);
      same(refused.getStatus().getReason(), "AlreadyExists");
      return;
    }
    throw new AssertionError("it was made again");
  }

  /** Makes, changes and deletes a map, each when the step before was told. */
  private static void change(KubernetesClient client, String name, String suite, BlockingQueue<String> told)
      throws InterruptedException {
    client.resource(map(name, suite)).create();
    same(told.poll(PATIENCE, TimeUnit.SECONDS), "ADDED " + name);
    client.configMaps().withName(name).edit(old -> new ConfigMapBuilder(old).addToData("b", "2").build());
    same(told.poll(PATIENCE, TimeUnit.SECONDS), "MODIFIED " + name);
    client.configMaps().withName(name).delete();
    same(told.poll(PATIENCE, TimeUnit.SECONDS), "DELETED " + name);
  }

  private static void watch(KubernetesClient client) throws InterruptedException {
    BlockingQueue<String> told = new LinkedBlockingQueue<>();
    Watcher<ConfigMap> watcher = new Watcher<>() {
      @Override
      public void eventReceived(Action action, ConfigMap object) {
        told.add(action + " " + object.getMetadata().getName());
      }

      @Override
      public void onClose(WatcherException cause) {
        told.add("closed: " + cause);
      }
    };
    try (AutoCloseable watching = client.configMaps().withLabel("suite", "watched").watch(watcher)) {
      change(client, "watched", "watched", told);
    } catch (InterruptedException | RuntimeException error) {
      throw error;
    } catch (Exception error) {
      throw new AssertionError(error);
    }
  }

  private static void informer(KubernetesClient client) throws InterruptedException {
    BlockingQueue<String> told = new LinkedBlockingQueue<>();
    var informer = client.configMaps().withLabel("suite", "informed").inform(new ResourceEventHandler<ConfigMap>() {
      @Override
      public void onAdd(ConfigMap object) {
        told.add("ADDED " + object.getMetadata().getName());
      }

      @Override
      public void onUpdate(ConfigMap old, ConfigMap object) {
        told.add("MODIFIED " + object.getMetadata().getName());
      }

      @Override
      public void onDelete(ConfigMap object, boolean unknown) {
        told.add("DELETED " + object.getMetadata().getName());
      }
    });
    try {
      change(client, "informed", "informed", told);
      same(informer.getStore().list().size(), 0);
    } finally {
      informer.stop();
    }
  }

  private static void changes(KubernetesClient client) {
    client.resource(map("changed", "changes")).create();
    client.configMaps().withName("changed").edit(old -> new ConfigMapBuilder(old).addToData("edited", "yes").build());
    client.configMaps().withName("changed")
        .patch(PatchContext.of(PatchType.STRATEGIC_MERGE), "{\"data\":{\"merged\":\"yes\"}}");
    client.configMaps().withName("changed")
        .patch(PatchContext.of(PatchType.JSON), "[{\"op\":\"remove\",\"path\":\"/data/a\"}]");
    ConfigMap wanted = new ConfigMapBuilder().withNewMetadata().withName("changed").endMetadata()
        .addToData("applied", "yes").build();
    client.resource(wanted).fieldManager("fabric8").forceConflicts().serverSideApply();
    same(client.configMaps().withName("changed").get().getData().keySet(), java.util.Set.of("edited", "merged", "applied"));
    same(client.resource(map("changed", "again")).createOr(NonDeletingOperation::update).getMetadata().getLabels().get("suite"),
        "again");
  }

  private static void custom(KubernetesClient client) {
    String job = """
        apiVersion: batch.volcano.sh/v1alpha1
        kind: Job
        metadata: {name: from-java}
        spec:
          schedulerName: volcano
          minAvailable: 1
          tasks:
          - name: w
            replicas: 1
            template:
              spec:
                restartPolicy: Never
                nodeSelector: {nowhere: at-all}
                containers: [{name: main, image: none}]
        """;
    client.load(new java.io.ByteArrayInputStream(job.getBytes(java.nio.charset.StandardCharsets.UTF_8))).create();
    var jobs = client.genericKubernetesResources("batch.volcano.sh/v1alpha1", "Job");
    GenericKubernetesResource found = jobs.withName("from-java").get();
    same(((Map<?, ?>) found.getAdditionalProperties().get("spec")).get("queue"), "default");
    same(jobs.list().getItems().size(), 1);
    jobs.withName("from-java").delete();
  }

  private static void waits(KubernetesClient client) {
    client.resource(new PodBuilder().withNewMetadata().withName("waits").endMetadata().withNewSpec()
        .addToNodeSelector("nowhere", "at-all").addNewContainer().withName("main").withImage("none").endContainer()
        .endSpec().build()).create();
    client.pods().withName("waits").waitUntilCondition(pod -> pod != null && "Pending".equals(pod.getStatus().getPhase()),
        PATIENCE, TimeUnit.SECONDS);
    client.pods().withName("waits").withGracePeriod(0).delete();
    client.pods().withName("waits").waitUntilCondition(pod -> pod == null, PATIENCE, TimeUnit.SECONDS);
  }
}
