// A short life of an operator with client-go: a typed client for definitions, a dynamic one for widgets, an informer
// and leader election. It prints what it saw, one JSON line per step, as the other lives do.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/pager"
	watchtools "k8s.io/client-go/tools/watch"
)

const plural, selector = "widgets", "app=shop"

var (
	namespace = os.Getenv("CONFORMANCE_NAMESPACE")
	client    = os.Getenv("CONFORMANCE_CLIENT")
	group     = client + ".conformance.example"
	resource  = schema.GroupVersionResource{Group: group, Version: "v1", Resource: plural}
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	config := must(clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG")))
	config.WarningHandler = rest.NoWarnings{}
	definitions := apiextensions.NewForConfigOrDie(config).ApiextensionsV1().CustomResourceDefinitions()
	everything := dynamic.NewForConfigOrDie(config)
	widgets := everything.Resource(resource).Namespace(namespace)

	establish(ctx, apiextensions.NewForConfigOrDie(config))
	untilServed(ctx, widgets)
	write(ctx, widgets)
	apply(ctx, widgets)
	inform(ctx, everything, widgets)
	lead(ctx, kubernetes.NewForConfigOrDie(config))
	check(definitions.Delete(ctx, plural+"."+group, metav1.DeleteOptions{}))
	see("done", nil)
}

func establish(ctx context.Context, clients apiextensions.Interface) {
	definitions := clients.ApiextensionsV1().CustomResourceDefinitions()
	must(definitions.Create(ctx, definition(), metav1.CreateOptions{}))
	byName := fields.OneTermEqualSelector("metadata.name", plural+"."+group)
	source := cache.NewListWatchFromClient(
		clients.ApiextensionsV1().RESTClient(), "customresourcedefinitions", "", byName)
	must(watchtools.UntilWithSync(ctx, source, &apiextensionsv1.CustomResourceDefinition{}, nil,
		func(event watch.Event) (bool, error) {
			for _, row := range event.Object.(*apiextensionsv1.CustomResourceDefinition).Status.Conditions {
				if row.Type == apiextensionsv1.Established && row.Status == apiextensionsv1.ConditionTrue {
					return true, nil
				}
			}
			return false, nil
		}))
	see("established", nil)
}

// untilServed waits for the cache of a new kind; until it is there, the real server answers 429.
func untilServed(ctx context.Context, widgets dynamic.ResourceInterface) {
	for {
		_, err := widgets.List(ctx, metav1.ListOptions{})
		if err == nil {
			return
		}
		if !apierrors.IsTooManyRequests(err) && !apierrors.IsNotFound(err) {
			check(err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func write(ctx context.Context, widgets dynamic.ResourceInterface) {
	seeObject("created", must(widgets.Create(ctx, widget("a", 1), metav1.CreateOptions{})))
	_, err := widgets.Create(ctx, widget("a", 1), metav1.CreateOptions{})
	seeRefusal("created again", err)
	_, err = widgets.Create(ctx, widget("b", 0), metav1.CreateOptions{})
	seeRefusal("invalid", err)
	stale := must(widgets.Get(ctx, "a", metav1.GetOptions{}))
	merge := func(body string, subresources ...string) *unstructured.Unstructured {
		return must(widgets.Patch(
			ctx, "a", types.MergePatchType, []byte(body), metav1.PatchOptions{}, subresources...))
	}
	seeObject("patched", merge(`{"spec": {"size": 2}}`))
	_, err = widgets.Update(ctx, stale, metav1.UpdateOptions{})
	seeRefusal("stale", err)
	seeObject("status", merge(`{"status": {"ready": true}, "spec": {"size": 9}}`, "status"))
	must(widgets.Create(ctx, widget("b", 3), metav1.CreateOptions{}))
	listed := must(widgets.List(ctx, metav1.ListOptions{LabelSelector: selector}))
	see("listed", map[string]any{"names": names(listed.Items)})

	paged, pages := []string{}, 0
	check(pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		options.Limit, pages = 1, pages+1
		return widgets.List(ctx, options)
	}).EachListItem(ctx, metav1.ListOptions{}, func(found runtime.Object) error {
		paged = append(paged, found.(*unstructured.Unstructured).GetName())
		return nil
	}))
	see("paged", map[string]any{"names": paged, "pages": pages})

	check(widgets.Delete(ctx, "b", metav1.DeleteOptions{}))
	must(widgets.Create(ctx, widget("c", 4), metav1.CreateOptions{}))
	check(widgets.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: selector}))
	source := &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return widgets.Watch(ctx, options)
		},
	}
	events := []string{}
	must(watchtools.Until(ctx, listed.GetResourceVersion(), source, func(event watch.Event) (bool, error) {
		events = append(events, fmt.Sprint(event.Type, " ", event.Object.(*unstructured.Unstructured).GetName()))
		return len(events) == 4, nil
	}))
	slices.Sort(events)
	see("watched", map[string]any{"events": events})
	_, err = widgets.Get(ctx, "a", metav1.GetOptions{})
	seeRefusal("gone", err)
}

func apply(ctx context.Context, widgets dynamic.ResourceInterface) {
	by := func(manager string, size int64, force bool) (*unstructured.Unstructured, error) {
		return widgets.Apply(ctx, "d", widget("d", size), metav1.ApplyOptions{FieldManager: manager, Force: force})
	}
	seeObject("applied", must(by("first", 1, false)))
	_, err := by("second", 2, false)
	seeRefusal("applied by another", err)
	seeObject("applied by force", must(by("second", 2, true)))
	live := must(by("second", 2, true))
	live.Object["status"] = map[string]any{"ready": true}
	seeObject("updated status", must(widgets.UpdateStatus(ctx, live, metav1.UpdateOptions{})))
	check(widgets.Delete(ctx, "d", metav1.DeleteOptions{}))
}

// inform follows one widget with an informer, through a resync: an update that changes nothing.
func inform(ctx context.Context, clients dynamic.Interface, widgets dynamic.ResourceInterface) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	seen := make(chan string, 1000)
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(
		clients, time.Second, namespace, func(options *metav1.ListOptions) { options.LabelSelector = selector })
	informer := factory.ForResource(resource).Informer()
	say := func(what string, live any) {
		if gone, ok := live.(cache.DeletedFinalStateUnknown); ok {
			live = gone.Obj
		}
		widget := live.(*unstructured.Unstructured)
		size, _, _ := unstructured.NestedInt64(widget.Object, "spec", "size")
		seen <- fmt.Sprintf("%s %s %d", what, widget.GetName(), size)
	}
	must(informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(live any) { say("added", live) },
		UpdateFunc: func(old, live any) {
			before, after := old.(*unstructured.Unstructured), live.(*unstructured.Unstructured)
			if before.GetResourceVersion() == after.GetResourceVersion() {
				say("resynced", live)
			} else {
				say("updated", live)
			}
		},
		DeleteFunc: func(live any) { say("deleted", live) },
	}))
	must(widgets.Create(ctx, widget("e", 1), metav1.CreateOptions{}))
	factory.Start(ctx.Done())
	informed := []string{}
	await := func(wanted string) {
		for {
			select {
			case event := <-seen:
				if !slices.Contains(informed, event) { // resyncs go on
					informed = append(informed, event)
				}
				if event == wanted {
					return
				}
			case <-ctx.Done():
				check(fmt.Errorf("no %q: %v", wanted, informed))
			}
		}
	}
	await("resynced e 1")
	must(widgets.Patch(ctx, "e", types.MergePatchType, []byte(`{"spec": {"size": 2}}`), metav1.PatchOptions{}))
	await("resynced e 2")
	check(widgets.Delete(ctx, "e", metav1.DeleteOptions{}))
	await("deleted e 2")
	see("informed", map[string]any{"events": informed, "left": len(informer.GetStore().ListKeys())})
}

// lead lets a first candidate lead and step down, and a second one follow.
func lead(ctx context.Context, clients kubernetes.Interface) {
	leases := clients.CoordinationV1().Leases(namespace)
	name := client + "-leader"
	for _, identity := range []string{"first", "second"} {
		leading, stop := context.WithCancel(ctx)
		lock := &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Name: name, Namespace: namespace},
			Client:     clients.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
		}
		leaderelection.RunOrDie(leading, leaderelection.LeaderElectionConfig{
			Lock: lock, LeaseDuration: 60 * time.Second, RenewDeadline: 40 * time.Second,
			RetryPeriod: 200 * time.Millisecond, ReleaseOnCancel: true,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(context.Context) {
					held := must(leases.Get(ctx, name, metav1.GetOptions{})).Spec
					see("leads", map[string]any{"holder": *held.HolderIdentity, "transitions": *held.LeaseTransitions})
					stop()
				},
				OnStoppedLeading: func() {},
			},
		})
	}
	stale := must(leases.Get(ctx, name, metav1.GetOptions{}))
	must(leases.Patch(
		ctx, name, types.StrategicMergePatchType, []byte(`{"spec": {"leaseTransitions": 9}}`), metav1.PatchOptions{}))
	_, err := leases.Update(ctx, stale, metav1.UpdateOptions{})
	seeRefusal("lost the race", err)
	check(leases.Delete(ctx, name, metav1.DeleteOptions{}))
}

func widget(name string, size int64) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": group + "/v1",
		"kind":       "Widget",
		"metadata":   map[string]any{"name": name, "namespace": namespace, "labels": map[string]any{"app": "shop"}},
		"spec":       map[string]any{"size": size},
	}}
}

// definition is the one of the other lives, which hand it over as JSON.
func definition() *apiextensionsv1.CustomResourceDefinition {
	made := &apiextensionsv1.CustomResourceDefinition{}
	check(json.Unmarshal([]byte(os.Getenv("CONFORMANCE_DEFINITION")), made))
	return made
}

func names(rows []unstructured.Unstructured) []string {
	found := []string{}
	for _, row := range rows {
		found = append(found, row.GetName())
	}
	return found
}

func see(step string, facts map[string]any) {
	line := map[string]any{"step": step}
	for name, fact := range facts {
		line[name] = fact
	}
	fmt.Println(string(must(json.Marshal(line))))
}

func seeObject(step string, live *unstructured.Unstructured) {
	appliers := []string{}
	for _, row := range live.GetManagedFields() {
		if row.Operation == metav1.ManagedFieldsOperationApply {
			appliers = append(appliers, row.Manager+"/Apply")
		}
	}
	slices.Sort(appliers)
	see(step, map[string]any{
		"spec": live.Object["spec"], "status": live.Object["status"],
		"generation": live.GetGeneration(), "appliers": slices.Compact(appliers),
	})
}

func seeRefusal(step string, err error) {
	var refusal apierrors.APIStatus
	if !errors.As(err, &refusal) {
		see(step, map[string]any{"error": fmt.Sprint(err)})
		return
	}
	status, causes := refusal.Status(), []string{}
	if status.Details != nil {
		for _, cause := range status.Details.Causes {
			causes = append(causes, strings.TrimSpace(cause.Field))
		}
	}
	slices.Sort(causes)
	see(step, map[string]any{"code": status.Code, "reason": status.Reason, "fields": slices.Compact(causes)})
}

func must[T any](made T, err error) T {
	check(err)
	return made
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
