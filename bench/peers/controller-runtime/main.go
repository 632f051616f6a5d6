// The controller-runtime contender: what a Go operator author would write, with the defaults of the library.
//
//	sync COUNT     a typed cache of ConfigMaps; prints when COUNT objects are in it
//	events         a typed cache of Ticks; measures how late each update arrives
//	controllers    a controller that applies one ConfigMap per Gadget
//
// See bench/contenders.py for the protocol.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

var group = schema.GroupVersion{Group: "bench.example.org", Version: "v1"}

type Spec struct {
	Sent    string            `json:"sent,omitempty"`
	Payload map[string]string `json:"payload,omitempty"`
}

// Tick is the custom resource that changes all the time.
type Tick struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              Spec `json:"spec"`
}

type TickList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Tick `json:"items"`
}

// Gadget is the custom resource that wants a child.
type Gadget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              Spec `json:"spec"`
}

type GadgetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Gadget `json:"items"`
}

func (s Spec) copied() Spec {
	if s.Payload != nil {
		payload := make(map[string]string, len(s.Payload))
		for key, value := range s.Payload {
			payload[key] = value
		}
		s.Payload = payload
	}
	return s
}

func (t *Tick) DeepCopyObject() runtime.Object {
	out := &Tick{TypeMeta: t.TypeMeta, Spec: t.Spec.copied()}
	t.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	return out
}

func (l *TickList) DeepCopyObject() runtime.Object {
	out := &TickList{TypeMeta: l.TypeMeta}
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	for i := range l.Items {
		out.Items = append(out.Items, *l.Items[i].DeepCopyObject().(*Tick))
	}
	return out
}

func (g *Gadget) DeepCopyObject() runtime.Object {
	out := &Gadget{TypeMeta: g.TypeMeta, Spec: g.Spec.copied()}
	g.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	return out
}

func (l *GadgetList) DeepCopyObject() runtime.Object {
	out := &GadgetList{TypeMeta: l.TypeMeta}
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	for i := range l.Items {
		out.Items = append(out.Items, *l.Items[i].DeepCopyObject().(*Gadget))
	}
	return out
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func say(value any) {
	line, err := json.Marshal(value)
	must(err)
	fmt.Println(string(line))
}

func newManager() ctrl.Manager {
	ctrl.SetLogger(zap.New(zap.WriteTo(os.Stderr)))
	scheme := runtime.NewScheme()
	must(clientgoscheme.AddToScheme(scheme))
	scheme.AddKnownTypes(group, &Tick{}, &TickList{}, &Gadget{}, &GadgetList{})
	metav1.AddToGroupVersion(scheme, group)
	config := ctrl.GetConfigOrDie()
	config.QPS = -1 // no client-side limit: the server's own flow control is enough
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:  scheme,
		Metrics: metricsserver.Options{BindAddress: "0"},
	})
	must(err)
	return manager
}

func syncConfigMaps(ctx context.Context, count int) {
	manager := newManager()
	_, err := manager.GetCache().GetInformer(ctx, &corev1.ConfigMap{})
	must(err)
	go func() {
		if !manager.GetCache().WaitForCacheSync(ctx) {
			os.Exit(1)
		}
		var found corev1.ConfigMapList
		must(manager.GetCache().List(ctx, &found, client.InNamespace("bench"), client.UnsafeDisableDeepCopy))
		if len(found.Items) != count {
			must(fmt.Errorf("the cache holds %d objects, not %d", len(found.Items), count))
		}
		say(map[string]any{"synced": len(found.Items)})
	}()
	must(manager.Start(ctx))
}

func measureEvents(ctx context.Context) {
	manager := newManager()
	informer, err := manager.GetCache().GetInformer(ctx, &Tick{})
	must(err)
	var lags []float64
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		UpdateFunc: func(_, object any) {
			tick := object.(*Tick)
			if tick.Name == "end" {
				sort.Float64s(lags)
				say(map[string]any{"events": len(lags), "p50": at(lags, 0.5), "p99": at(lags, 0.99)})
				return
			}
			sent, err := strconv.ParseInt(tick.Spec.Sent, 10, 64)
			must(err)
			lags = append(lags, float64(time.Now().UnixNano()-sent)/1e9)
		},
	})
	must(err)
	go func() {
		if manager.GetCache().WaitForCacheSync(ctx) {
			say(map[string]any{"synced": true})
		}
	}()
	must(manager.Start(ctx))
}

func at(sorted []float64, share float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(share*float64(len(sorted)-1))]
}

type reconciler struct{ client.Client }

func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var gadget Gadget
	if err := r.Get(ctx, request.NamespacedName, &gadget); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	child := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1",
		"kind":       "ConfigMap",
		"metadata":   map[string]any{"name": gadget.Name, "namespace": gadget.Namespace},
		"data":       map[string]any{"of": gadget.Name},
	}}
	if err := ctrl.SetControllerReference(&gadget, child, r.Scheme()); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, r.Apply(ctx, client.ApplyConfigurationFromUnstructured(child), client.FieldOwner("bench"), client.ForceOwnership)
}

func runController(ctx context.Context) {
	manager := newManager()
	must(ctrl.NewControllerManagedBy(manager).
		For(&Gadget{}).
		Owns(&corev1.ConfigMap{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: 16}).
		Complete(&reconciler{manager.GetClient()}))
	must(manager.Start(ctx))
}

func main() {
	ctx := ctrl.SetupSignalHandler()
	switch os.Args[1] {
	case "sync":
		count, err := strconv.Atoi(os.Args[2])
		must(err)
		syncConfigMaps(ctx, count)
	case "events":
		measureEvents(ctx)
	case "controllers":
		runController(ctx)
	default:
		must(fmt.Errorf("unknown mode %s", os.Args[1]))
	}
}
