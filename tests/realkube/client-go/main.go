// What programs in Go do with client-go, one behaviour a line on standard output: its name, a tab, and "yes" or what went wrong.
// It works in the namespace of the kubeconfig that $KUBECONFIG names, which must be empty.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	failure "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	applycore "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/pager"
	watchtools "k8s.io/client-go/tools/watch"
	"k8s.io/client-go/util/retry"
)

// Longest wait for one behaviour.
const patience = 60 * time.Second

// Everything of one run.
type place struct {
	config    *rest.Config
	clients   kubernetes.Interface
	dynamic   dynamic.Interface
	namespace string
}

type behaviour struct {
	name string
	run  func(context.Context, *place) error
}

func main() {
	loading := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		clientcmd.NewDefaultClientConfigLoadingRules(), &clientcmd.ConfigOverrides{})
	config, err := loading.ClientConfig()
	exitOn(err)
	namespace, _, err := loading.Namespace()
	exitOn(err)
	config.QPS, config.Burst = 1000, 1000
	failed := false
	for _, each := range behaviours {
		p, err := open(config, namespace)
		exitOn(err)
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		err = each.run(ctx, p)
		cancel()
		verdict := "yes"
		if err != nil {
			verdict, failed = fmt.Sprintf("%q", err), true
		}
		fmt.Printf("%s\t%s\n", each.name, verdict)
	}
	if failed {
		os.Exit(1)
	}
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

func open(config *rest.Config, namespace string) (*place, error) {
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	dyn, err := dynamic.NewForConfig(config)
	return &place{config: config, clients: clients, dynamic: dyn, namespace: namespace}, err
}

var behaviours = []behaviour{
	{"a shared informer lists, follows changes and deletions", informer},
	{"an informer of a custom kind", customInformer},
	{"a pager reads 1,200 objects in pages of 100", pages},
	{"a watch goes on after it was cut (RetryWatcher)", retryWatch},
	{"create, get, update, list, delete with protobuf bodies", protobuf},
	{"an update of what has changed is a conflict, and is tried again", conflict},
	{"patches: strategic merge, merge, JSON", patches},
	{"server-side apply: conflict, force, extract", apply},
	{"two candidates elect a leader, and the other takes over", election},
	{"discovery and a RESTMapper find every kind", discover},
	{"an eviction that a budget allows, one that it refuses", evict},
	{"deletecollection by label", deleteCollection},
	{"events are recorded", events},
	{"a token of a service account is who it says", tokens},
}

func (p *place) maps() interface {
	Create(context.Context, *core.ConfigMap, meta.CreateOptions) (*core.ConfigMap, error)
	Update(context.Context, *core.ConfigMap, meta.UpdateOptions) (*core.ConfigMap, error)
	Delete(context.Context, string, meta.DeleteOptions) error
	Get(context.Context, string, meta.GetOptions) (*core.ConfigMap, error)
	List(context.Context, meta.ListOptions) (*core.ConfigMapList, error)
	Watch(context.Context, meta.ListOptions) (watch.Interface, error)
	Patch(context.Context, string, types.PatchType, []byte, meta.PatchOptions, ...string) (*core.ConfigMap, error)
	Apply(context.Context, *applycore.ConfigMapApplyConfiguration, meta.ApplyOptions) (*core.ConfigMap, error)
	DeleteCollection(context.Context, meta.DeleteOptions, meta.ListOptions) error
} {
	return p.clients.CoreV1().ConfigMaps(p.namespace)
}

func configMap(name, suite string, data map[string]string) *core.ConfigMap {
	return &core.ConfigMap{ObjectMeta: meta.ObjectMeta{Name: name, Labels: map[string]string{"suite": suite}}, Data: data}
}

func informer(ctx context.Context, p *place) error {
	if _, err := p.maps().Create(ctx, configMap("before", "informer", nil), meta.CreateOptions{}); err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactoryWithOptions(p.clients, 0, informers.WithNamespace(p.namespace),
		informers.WithTweakListOptions(func(options *meta.ListOptions) { options.LabelSelector = "suite=informer" }))
	seen := make(chan string, 16)
	shared := factory.Core().V1().ConfigMaps().Informer()
	name := func(object any) string { return object.(meta.Object).GetName() }
	if _, err := shared.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { seen <- "added " + name(object) },
		UpdateFunc: func(_, object any) { seen <- "updated " + name(object) },
		DeleteFunc: func(object any) { seen <- "deleted " + name(object) },
	}); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), shared.HasSynced) {
		return errors.New("it does not get in step")
	}
	if err := next(ctx, seen, "added before"); err != nil {
		return err
	}
	made, err := p.maps().Create(ctx, configMap("during", "informer", nil), meta.CreateOptions{})
	if err != nil {
		return err
	}
	if err := next(ctx, seen, "added during"); err != nil {
		return err
	}
	made.Data = map[string]string{"a": "b"}
	if _, err := p.maps().Update(ctx, made, meta.UpdateOptions{}); err != nil {
		return err
	}
	if err := next(ctx, seen, "updated during"); err != nil {
		return err
	}
	// It leaves the selection: a deletion for who selects.
	if _, err := p.maps().Patch(ctx, "before", types.MergePatchType, []byte(`{"metadata":{"labels":null}}`), meta.PatchOptions{}); err != nil {
		return err
	}
	if err := next(ctx, seen, "deleted before"); err != nil {
		return err
	}
	if err := p.maps().Delete(ctx, "during", meta.DeleteOptions{}); err != nil {
		return err
	}
	return next(ctx, seen, "deleted during")
}

func next(ctx context.Context, seen <-chan string, wanted string) error {
	select {
	case got := <-seen:
		if got != wanted {
			return fmt.Errorf("%s is told, not %s", got, wanted)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s is not told", wanted)
	}
}

var jobs = schema.GroupVersionResource{Group: "batch.volcano.sh", Version: "v1alpha1", Resource: "jobs"}

func volcanoJob(name string) *unstructured.Unstructured {
	container := map[string]any{"name": "main", "image": "none", "command": []any{"true"}}
	task := map[string]any{"name": "w", "replicas": int64(1), "template": map[string]any{"spec": map[string]any{
		"restartPolicy": "Never", "nodeSelector": map[string]any{"nowhere": "at-all"}, "containers": []any{container}}}}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"schedulerName": "volcano", "minAvailable": int64(1), "tasks": []any{task}}}}
}

func customInformer(ctx context.Context, p *place) error {
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(p.dynamic, 0, p.namespace, nil)
	shared := factory.ForResource(jobs).Informer()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), shared.HasSynced) {
		return errors.New("it does not get in step")
	}
	of := p.dynamic.Resource(jobs).Namespace(p.namespace)
	if _, err := of.Create(ctx, volcanoJob("informed"), meta.CreateOptions{}); err != nil {
		return err
	}
	key := p.namespace + "/informed"
	held := func() bool { _, found, _ := shared.GetStore().GetByKey(key); return found }
	if err := until(ctx, held); err != nil {
		return fmt.Errorf("the job is not told: %w", err)
	}
	if err := of.Delete(ctx, "informed", meta.DeleteOptions{}); err != nil {
		return err
	}
	return until(ctx, func() bool { return !held() })
}

func until(ctx context.Context, reached func() bool) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !reached() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func pages(ctx context.Context, p *place) error {
	const many = 1200
	slots, failures := make(chan struct{}, 16), make(chan error, many)
	var all sync.WaitGroup
	for number := range many {
		all.Add(1)
		slots <- struct{}{}
		go func() {
			defer func() { <-slots; all.Done() }()
			_, err := p.maps().Create(ctx, configMap(fmt.Sprintf("page-%04d", number), "pages", nil), meta.CreateOptions{})
			if err != nil {
				failures <- err
			}
		}()
	}
	all.Wait()
	select {
	case err := <-failures:
		return err
	default:
	}
	requests, objects := 0, 0
	reader := pager.New(func(ctx context.Context, options meta.ListOptions) (runtime.Object, error) {
		requests++
		options.LabelSelector = "suite=pages"
		return p.maps().List(ctx, options)
	})
	reader.PageSize = 100
	if err := reader.EachListItem(ctx, meta.ListOptions{}, func(runtime.Object) error { objects++; return nil }); err != nil {
		return err
	}
	if objects != many || requests < many/100 {
		return fmt.Errorf("%d objects in %d requests", objects, requests)
	}
	return p.maps().DeleteCollection(ctx, meta.DeleteOptions{}, meta.ListOptions{LabelSelector: "suite=pages"})
}

type listed struct{ p *place }

func (l listed) Watch(options meta.ListOptions) (watch.Interface, error) {
	// Ended by the server each second: the watcher has to take up where it was.
	second := int64(1)
	options.TimeoutSeconds = &second
	return l.p.maps().Watch(context.Background(), options)
}

func retryWatch(ctx context.Context, p *place) error {
	list, err := p.maps().List(ctx, meta.ListOptions{})
	if err != nil {
		return err
	}
	watcher, err := watchtools.NewRetryWatcher(list.ResourceVersion, listed{p})
	if err != nil {
		return err
	}
	defer watcher.Stop()
	for number := range 4 {
		name := fmt.Sprintf("retry-%d", number)
		if _, err := p.maps().Create(ctx, configMap(name, "retry", nil), meta.CreateOptions{}); err != nil {
			return err
		}
		select {
		case event := <-watcher.ResultChan():
			if event.Type != watch.Added || event.Object.(*core.ConfigMap).Name != name {
				return fmt.Errorf("%s of %v is told, not that %s was added", event.Type, event.Object, name)
			}
		case <-ctx.Done():
			return fmt.Errorf("%s is not told", name)
		}
		// Longer than a watch lasts, so that the next one comes to another.
		time.Sleep(1200 * time.Millisecond)
	}
	return nil
}

func protobuf(ctx context.Context, p *place) error {
	config := rest.CopyConfig(p.config)
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	of := clients.BatchV1().Jobs(p.namespace)
	zero := int32(0)
	job := &batch.Job{ObjectMeta: meta.ObjectMeta{Name: "in-protobuf"}, Spec: batch.JobSpec{Parallelism: &zero,
		Template: core.PodTemplateSpec{Spec: core.PodSpec{RestartPolicy: core.RestartPolicyNever,
			Containers: []core.Container{{Name: "main", Image: "none"}}}}}}
	made, err := of.Create(ctx, job, meta.CreateOptions{})
	if err != nil {
		return err
	}
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		made, err = of.Get(ctx, "in-protobuf", meta.GetOptions{})
		if err != nil {
			return err
		}
		made.Labels = map[string]string{"changed": "yes"}
		_, err = of.Update(ctx, made, meta.UpdateOptions{})
		return err
	})
	if err != nil {
		return err
	}
	list, err := of.List(ctx, meta.ListOptions{LabelSelector: "changed=yes"})
	if err != nil || len(list.Items) != 1 {
		return fmt.Errorf("the list has %d: %w", len(list.Items), err)
	}
	background := meta.DeletePropagationBackground
	return of.Delete(ctx, "in-protobuf", meta.DeleteOptions{PropagationPolicy: &background})
}

func conflict(ctx context.Context, p *place) error {
	made, err := p.maps().Create(ctx, configMap("conflict", "conflict", nil), meta.CreateOptions{})
	if err != nil {
		return err
	}
	first, second := made.DeepCopy(), made.DeepCopy()
	first.Data = map[string]string{"who": "first"}
	if _, err := p.maps().Update(ctx, first, meta.UpdateOptions{}); err != nil {
		return err
	}
	second.Data = map[string]string{"who": "second"}
	if _, err := p.maps().Update(ctx, second, meta.UpdateOptions{}); !failure.IsConflict(err) {
		return fmt.Errorf("the second update gives %v", err)
	}
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		current, err := p.maps().Get(ctx, "conflict", meta.GetOptions{})
		if err != nil {
			return err
		}
		current.Data["also"] = "second"
		_, err = p.maps().Update(ctx, current, meta.UpdateOptions{})
		return err
	})
}

func patches(ctx context.Context, p *place) error {
	if _, err := p.maps().Create(ctx, configMap("patched", "patches", map[string]string{"a": "1"}), meta.CreateOptions{}); err != nil {
		return err
	}
	for kind, body := range map[types.PatchType]string{
		types.StrategicMergePatchType: `{"data":{"b":"2"}}`,
		types.MergePatchType:          `{"data":{"c":"3"}}`,
		types.JSONPatchType:           `[{"op":"add","path":"/data/d","value":"4"}]`,
	} {
		if _, err := p.maps().Patch(ctx, "patched", kind, []byte(body), meta.PatchOptions{}); err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
	}
	found, err := p.maps().Get(ctx, "patched", meta.GetOptions{})
	if err != nil || len(found.Data) != 4 {
		return fmt.Errorf("it holds %v: %w", found.Data, err)
	}
	_, err = p.maps().Patch(ctx, "patched", types.JSONPatchType, []byte(`[{"op":"test","path":"/data/a","value":"9"}]`), meta.PatchOptions{})
	if !failure.IsInvalid(err) {
		return fmt.Errorf("a test that fails gives %v", err)
	}
	return nil
}

func apply(ctx context.Context, p *place) error {
	wanted := func(value string) *applycore.ConfigMapApplyConfiguration {
		return applycore.ConfigMap("applied", p.namespace).WithData(map[string]string{"k": value})
	}
	as := func(manager string) meta.ApplyOptions { return meta.ApplyOptions{FieldManager: manager} }
	if _, err := p.maps().Apply(ctx, wanted("1"), as("one")); err != nil {
		return err
	}
	if _, err := p.maps().Apply(ctx, wanted("2"), as("two")); !failure.IsConflict(err) {
		return fmt.Errorf("applying what another owns gives %v", err)
	}
	force := as("two")
	force.Force = true
	applied, err := p.maps().Apply(ctx, wanted("2").WithLabels(map[string]string{"by": "two"}), force)
	if err != nil {
		return err
	}
	for manager, keys := range map[string]int{"one": 0, "two": 1} {
		extracted, err := applycore.ExtractConfigMap(applied, manager)
		if err != nil || len(extracted.Data) != keys {
			return fmt.Errorf("%s owns %v: %w", manager, extracted.Data, err)
		}
	}
	// What is no longer applied goes.
	applied, err = p.maps().Apply(ctx, applycore.ConfigMap("applied", p.namespace), as("two"))
	if err != nil || len(applied.Data) != 0 || len(applied.Labels) != 0 {
		return fmt.Errorf("%v and %v are left: %w", applied.Data, applied.Labels, err)
	}
	return nil
}

func election(ctx context.Context, p *place) error {
	leads := make(chan string, 2)
	candidate := func(ctx context.Context, name string) {
		lock := &resourcelock.LeaseLock{LeaseMeta: meta.ObjectMeta{Name: "leader", Namespace: p.namespace},
			Client: p.clients.CoordinationV1(), LockConfig: resourcelock.ResourceLockConfig{Identity: name}}
		leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{Lock: lock, ReleaseOnCancel: true,
			LeaseDuration: 3 * time.Second, RenewDeadline: 2 * time.Second, RetryPeriod: 200 * time.Millisecond,
			Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) { leads <- name }, OnStoppedLeading: func() {}}})
	}
	first, end := context.WithCancel(ctx)
	defer end()
	go candidate(first, "first")
	if err := next(ctx, leads, "first"); err != nil {
		return err
	}
	second, stop := context.WithCancel(ctx)
	defer stop()
	go candidate(second, "second")
	select {
	case who := <-leads:
		return fmt.Errorf("%s leads, too", who)
	case <-time.After(time.Second):
	}
	end()
	return next(ctx, leads, "second")
}

func discover(_ context.Context, p *place) error {
	client, err := discovery.NewDiscoveryClientForConfig(p.config)
	if err != nil {
		return err
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client))
	for _, kind := range []schema.GroupKind{{Kind: "Pod"}, {Group: "apps", Kind: "Deployment"}, {Group: "batch", Kind: "Job"},
		{Group: "batch.volcano.sh", Kind: "Job"}, {Group: "scheduling.volcano.sh", Kind: "Queue"}} {
		if _, err := mapper.RESTMapping(kind); err != nil {
			return err
		}
	}
	return nil
}

func evict(ctx context.Context, p *place) error {
	of := p.clients.CoreV1().Pods(p.namespace)
	for _, name := range []string{"kept", "free"} {
		pod := &core.Pod{ObjectMeta: meta.ObjectMeta{Name: name, Labels: map[string]string{"app": name}},
			Spec: core.PodSpec{NodeSelector: map[string]string{"nowhere": "at-all"}, Containers: []core.Container{{Name: "main", Image: "none"}}}}
		if _, err := of.Create(ctx, pod, meta.CreateOptions{}); err != nil {
			return err
		}
	}
	eviction := func(name string) error {
		return of.EvictV1(ctx, &policy.Eviction{ObjectMeta: meta.ObjectMeta{Name: name, Namespace: p.namespace}})
	}
	if err := eviction("free"); err != nil {
		return err
	}
	if _, err := of.Get(ctx, "free", meta.GetOptions{}); !failure.IsNotFound(err) {
		return fmt.Errorf("the evicted pod gives %v", err)
	}
	// A pod that does not run yet may always go; one that runs counts.
	status := []byte(`{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`)
	if _, err := of.Patch(ctx, "kept", types.MergePatchType, status, meta.PatchOptions{}, "status"); err != nil {
		return err
	}
	budgets := p.clients.PolicyV1().PodDisruptionBudgets(p.namespace)
	one := &policy.PodDisruptionBudget{ObjectMeta: meta.ObjectMeta{Name: "kept"}, Spec: policy.PodDisruptionBudgetSpec{
		Selector: &meta.LabelSelector{MatchLabels: map[string]string{"app": "kept"}}, MinAvailable: &minimum}}
	if _, err := budgets.Create(ctx, one, meta.CreateOptions{}); err != nil {
		return err
	}
	if err := eviction("kept"); !failure.IsTooManyRequests(err) {
		return fmt.Errorf("what the budget keeps gives %v", err)
	}
	if err := budgets.Delete(ctx, "kept", meta.DeleteOptions{}); err != nil {
		return err
	}
	return eviction("kept")
}

func deleteCollection(ctx context.Context, p *place) error {
	for _, name := range []string{"gone-1", "gone-2"} {
		if _, err := p.maps().Create(ctx, configMap(name, "gone", nil), meta.CreateOptions{}); err != nil {
			return err
		}
	}
	if _, err := p.maps().Create(ctx, configMap("stays", "stays", nil), meta.CreateOptions{}); err != nil {
		return err
	}
	selector := meta.ListOptions{LabelSelector: "suite in (gone, stays), suite!=stays"}
	if err := p.maps().DeleteCollection(ctx, meta.DeleteOptions{}, selector); err != nil {
		return err
	}
	if _, err := p.maps().Get(ctx, "stays", meta.GetOptions{}); err != nil {
		return err
	}
	list, err := p.maps().List(ctx, selector)
	if err != nil || len(list.Items) != 0 {
		return fmt.Errorf("%d are left: %w", len(list.Items), err)
	}
	return nil
}
