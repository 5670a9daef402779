package main

import (
	"context"
	"fmt"

	authentication "k8s.io/api/authentication/v1"
	core "k8s.io/api/core/v1"
	failure "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcore "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	eventsv1 "k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/record"
)

// What the budget of an eviction keeps.
var minimum = intstr.FromInt32(1)

// events are recorded by both recorders there are, of v1 and of events.k8s.io/v1, and read as v1.
func events(ctx context.Context, p *place) error {
	of, err := p.maps().Create(ctx, configMap("told", "events", nil), meta.CreateOptions{})
	if err != nil {
		return err
	}
	old := record.NewBroadcaster()
	defer old.Shutdown()
	old.StartRecordingToSink(&typedcore.EventSinkImpl{Interface: p.clients.CoreV1().Events(p.namespace)})
	recorder := old.NewRecorder(scheme.Scheme, core.EventSource{Component: "client-go"})
	recorder.Event(of, core.EventTypeNormal, "Old", "by the recorder of v1")
	recorder.Event(of, core.EventTypeNormal, "Old", "by the recorder of v1")

	broadcaster := eventsv1.NewBroadcaster(&eventsv1.EventSinkImpl{Interface: p.clients.EventsV1()})
	defer broadcaster.Shutdown()
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		return err
	}
	broadcaster.NewRecorder(scheme.Scheme, "client-go").Eventf(of, nil, core.EventTypeWarning, "New", "Telling", "by the recorder of %s", "events.k8s.io")

	found := map[string]core.Event{}
	err = until(ctx, func() bool {
		list, err := p.clients.CoreV1().Events(p.namespace).List(ctx, meta.ListOptions{FieldSelector: "involvedObject.name=told"})
		if err != nil {
			return false
		}
		for _, event := range list.Items {
			found[event.Reason] = event
		}
		return len(found) == 2 && found["Old"].Count == 2
	})
	if err != nil {
		return fmt.Errorf("%d are told, of the first %d: %w", len(found), found["Old"].Count, err)
	}
	if message := found["New"].Message; message != "by the recorder of events.k8s.io" {
		return fmt.Errorf("the new one says %q", message)
	}
	return nil
}

// tokens: an account's token is known, may do nothing at first, and may do what a binding says.
func tokens(ctx context.Context, p *place) error {
	accounts := p.clients.CoreV1().ServiceAccounts(p.namespace)
	if _, err := accounts.Create(ctx, &core.ServiceAccount{ObjectMeta: meta.ObjectMeta{Name: "somebody"}}, meta.CreateOptions{}); err != nil {
		return err
	}
	request, err := accounts.CreateToken(ctx, "somebody", &authentication.TokenRequest{}, meta.CreateOptions{})
	if err != nil {
		return err
	}
	config := rest.AnonymousClientConfig(p.config)
	config.BearerToken = request.Status.Token
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	self, err := clients.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authentication.SelfSubjectReview{}, meta.CreateOptions{})
	if err != nil {
		return err
	}
	if wanted := "system:serviceaccount:" + p.namespace + ":somebody"; self.Status.UserInfo.Username != wanted {
		return fmt.Errorf("it is %s", self.Status.UserInfo.Username)
	}
	if _, err := clients.CoreV1().ConfigMaps(p.namespace).List(ctx, meta.ListOptions{}); !failure.IsForbidden(err) {
		return fmt.Errorf("a list without a binding gives %v", err)
	}
	return nil
}
