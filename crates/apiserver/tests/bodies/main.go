// Bodies as Kubernetes' own encoder writes them, each with the JSON that Kubernetes makes of it: the fixture of the tests
// of protobuf bodies. Prints it. The argument "all" takes every kind with everything in it.
package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"time"

	admissionregistration "k8s.io/api/admissionregistration/v1"
	apps "k8s.io/api/apps/v1"
	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
	autoscaling "k8s.io/api/autoscaling/v1"
	batch "k8s.io/api/batch/v1"
	coordination "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	events "k8s.io/api/events/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	rbac "k8s.io/api/rbac/v1"
	scheduling "k8s.io/api/scheduling/v1"
	storage "k8s.io/api/storage/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/util/intstr"
)

type body struct {
	Name string          `json:"name"`
	Body string          `json:"body"`
	JSON json.RawMessage `json:"json"`
}

var scheme = runtime.NewScheme()

// How deep objects are filled, and with what: 0 = values, 1 = pointers to zeros.
type filler struct {
	depth int
	zeros bool
}

// Structs that are being filled: none is filled within itself.
var within = map[reflect.Type]bool{}

func (f filler) fill(v reflect.Value, name string, depth int) {
	if v.CanAddr() {
		switch at := v.Addr().Interface().(type) {
		case *meta.Time:
			if !f.zeros {
				*at = meta.Date(2026, 11, 23, 5, 6, 7, 0, time.UTC)
			}
			return
		case *meta.MicroTime:
			if !f.zeros {
				*at = meta.DateMicro(2026, 11, 23, 5, 6, 7, 89000, time.UTC)
			}
			return
		case *resource.Quantity:
			if !f.zeros {
				*at = resource.MustParse("1500m")
			}
			return
		case *intstr.IntOrString:
			if f.zeros {
				*at = intstr.FromString("")
			} else if depth%2 == 0 {
				*at = intstr.FromInt32(80)
			} else {
				*at = intstr.FromString("http")
			}
			return
		case *runtime.RawExtension:
			if !f.zeros {
				at.Raw = []byte(`{"a":[1,null,"x"]}`)
			}
			return
		case *meta.FieldsV1:
			at.Raw = []byte(`{"f:metadata":{}}`)
			return
		case *apiextensions.JSON:
			at.Raw = []byte(`{"b":1.5}`)
			return
		case *apiextensions.JSONSchemaPropsOrBool:
			if at.Allows = !f.zeros; depth < f.depth && f.zeros {
				at.Schema = &apiextensions.JSONSchemaProps{Type: "string"}
			}
			return
		case *apiextensions.JSONSchemaPropsOrArray:
			if at.Schema = &(apiextensions.JSONSchemaProps{Type: "string"}); f.zeros {
				at.Schema, at.JSONSchemas = nil, []apiextensions.JSONSchemaProps{{Type: "integer"}, {}}
			}
			return
		case *apiextensions.JSONSchemaPropsOrStringArray:
			if at.Schema = &(apiextensions.JSONSchemaProps{Type: "string"}); f.zeros {
				at.Schema, at.Property = nil, []string{"a", "b"}
			}
			return
		}
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(!f.zeros)
	case reflect.Int32, reflect.Int64:
		if !f.zeros {
			v.SetInt(-7)
		}
	case reflect.Float64:
		if !f.zeros {
			v.SetFloat(2.5)
		}
	case reflect.String:
		if !f.zeros {
			v.SetString("ä-" + name)
		}
	case reflect.Pointer:
		if depth < f.depth {
			v.Set(reflect.New(v.Type().Elem()))
			f.fill(v.Elem(), name, depth+1)
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes([]byte{0, 255, 7}[:map[bool]int{true: 0, false: 3}[f.zeros]])
		} else if depth < f.depth {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			f.fill(v.Index(0), name, depth+1)
		}
	case reflect.Map:
		if depth < f.depth {
			value := reflect.New(v.Type().Elem()).Elem()
			f.fill(value, name, depth+1)
			v.Set(reflect.MakeMap(v.Type()))
			v.SetMapIndex(reflect.ValueOf("k").Convert(v.Type().Key()), value)
		}
	case reflect.Struct:
		if within[v.Type()] {
			return
		}
		within[v.Type()] = true
		defer delete(within, v.Type())
		for i := 0; i < v.NumField(); i++ {
			field := v.Type().Field(i)
			if field.Type.String() != "v1.TypeMeta" && field.IsExported() {
				f.fill(v.Field(i), field.Name, depth)
			}
		}
	}
}

func main() {
	local := schema.GroupVersion{Version: "v1"}
	for _, add := range []func(*runtime.Scheme) error{
		core.AddToScheme, apps.AddToScheme, batch.AddToScheme, coordination.AddToScheme, scheduling.AddToScheme, rbac.AddToScheme,
		authentication.AddToScheme, authorization.AddToScheme, autoscaling.AddToScheme, policy.AddToScheme, networking.AddToScheme,
		storage.AddToScheme, admissionregistration.AddToScheme, apiextensions.AddToScheme, events.AddToScheme, discovery.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			panic(err)
		}
	}
	meta.AddToGroupVersion(scheme, local)
	serializer := protobuf.NewSerializer(scheme, scheme)
	var bodies []body
	add := func(name string, object runtime.Object) {
		kinds, _, err := scheme.ObjectKinds(object)
		if err != nil {
			panic(err)
		}
		object.GetObjectKind().SetGroupVersionKind(kinds[0])
		data, err := runtime.Encode(serializer, object)
		if err != nil {
			panic(fmt.Sprint(name, ": ", err))
		}
		// What Kubernetes reads of it.
		read, _, err := serializer.Decode(data, nil, nil)
		if err != nil {
			panic(err)
		}
		read.GetObjectKind().SetGroupVersionKind(kinds[0])
		text, err := json.Marshal(read)
		if err != nil {
			panic(fmt.Sprint(name, ": ", err))
		}
		bodies = append(bodies, body{name, base64.StdEncoding.EncodeToString(data), text})
	}
	variants := func(depth int, kinds ...func() runtime.Object) {
		for _, kind := range kinds {
			for _, variant := range []struct {
				name  string
				depth int
				zeros bool
			}{{"full", depth, false}, {"zeros", depth, true}, {"empty", 0, false}} {
				object := kind()
				if variant.name != "empty" {
					filler{variant.depth, variant.zeros}.fill(reflect.ValueOf(object).Elem(), "x", 0)
				}
				add(fmt.Sprintf("%T %s", object, variant.name), object)
			}
		}
	}
	if len(os.Args) > 1 && os.Args[1] == "all" {
		for gvk := range scheme.AllKnownTypes() {
			if gvk.Version != "v1" || gvk.Kind == "WatchEvent" || gvk.Kind == "InternalEvent" || gvk.Kind == "List" || gvk.Kind == "Status" || gvk.Kind == "ConversionReview" ||
				(len(gvk.Kind) > 4 && gvk.Kind[len(gvk.Kind)-4:] == "List") || (len(gvk.Kind) > 7 && gvk.Kind[len(gvk.Kind)-7:] == "Options") || gvk.Kind[0] == 'A' && gvk.Kind == "APIGroup" {
				continue
			}
			if gvk.Kind == "APIResourceList" || gvk.Kind == "APIVersions" || gvk.Kind == "RangeAllocation" || gvk.Kind == "SerializedReference" {
				continue
			}
			variants(12, func() runtime.Object { object, _ := scheme.New(gvk); return object })
		}
	} else {
		variants(9, func() runtime.Object { return &core.Pod{} }, func() runtime.Object { return &apiextensions.CustomResourceDefinition{} })
		variants(3,
			func() runtime.Object { return &apps.Deployment{} }, func() runtime.Object { return &batch.Job{} },
			func() runtime.Object { return &core.Service{} }, func() runtime.Object { return &core.Node{} },
			func() runtime.Object { return &core.ConfigMap{} }, func() runtime.Object { return &core.Secret{} },
			func() runtime.Object { return &core.Event{} }, func() runtime.Object { return &coordination.Lease{} },
			func() runtime.Object { return &scheduling.PriorityClass{} }, func() runtime.Object { return &core.ServiceAccount{} },
			func() runtime.Object { return &core.Namespace{} }, func() runtime.Object { return &core.PersistentVolumeClaim{} },
			func() runtime.Object { return &rbac.ClusterRole{} }, func() runtime.Object { return &rbac.RoleBinding{} },
			func() runtime.Object { return &authentication.TokenRequest{} }, func() runtime.Object { return &authentication.TokenReview{} },
			func() runtime.Object { return &authorization.SelfSubjectAccessReview{} },
			func() runtime.Object { return &authorization.SubjectAccessReview{} },
			func() runtime.Object { return &autoscaling.Scale{} }, func() runtime.Object { return &policy.Eviction{} },
			func() runtime.Object { return &core.Binding{} }, func() runtime.Object { return &meta.DeleteOptions{} },
			func() runtime.Object { return &admissionregistration.ValidatingWebhookConfiguration{} },
			func() runtime.Object { return &networking.NetworkPolicy{} }, func() runtime.Object { return &storage.StorageClass{} },
		)
	}
	fmt.Print("[")
	for index, body := range bodies {
		line, err := json.Marshal(body)
		if err != nil {
			panic(err)
		}
		if index > 0 {
			fmt.Print(",")
		}
		fmt.Printf("\n%s", line)
	}
	fmt.Print("\n]\n")
}
