package nomadplugin

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

func TestHoldPausesLongerAndLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		var seconds []int
		err := holder{hclog.NewNullLogger(), usualPauses}.hold(ctx, "fingerprint", func(ctx context.Context) error {
			seconds = append(seconds, int(time.Since(began)/time.Second))
			switch len(seconds) {
			case 8:
				<-time.After(time.Minute) // worked for long: the next pause is short again
			case 10:
				cancel()
			}
			return errors.New("ended")
		})
		if want := []int{0, 1, 3, 7, 15, 31, 61, 91, 152, 154}; !slices.Equal(seconds, want) {
			t.Errorf("called at %v s, want %v", seconds, want)
		}
		if err == nil {
			t.Error("the stream ended in order, which Nomad takes for the plugin's wish")
		}
	})
}

func TestSenderStopsWithItsCall(t *testing.T) {
	var sent []int32
	failing := errors.New("transport is closing")
	out := &sender[*wrapperspb.Int32Value]{send: func(message *wrapperspb.Int32Value) error {
		if message.GetValue() < 0 {
			return failing
		}
		sent = append(sent, message.GetValue())
		return nil
	}}
	for _, value := range []int32{1, 1, 2} {
		out.changed(wrapperspb.Int32(value))
	}
	out.always(wrapperspb.Int32(2))
	out.close()
	out.always(wrapperspb.Int32(3))
	if want := []int32{1, 2, 2}; !slices.Equal(sent, want) {
		t.Errorf("sent %v, want %v", sent, want)
	}
	broken := &sender[*wrapperspb.Int32Value]{send: out.send}
	broken.always(wrapperspb.Int32(-1))
	broken.always(wrapperspb.Int32(4))
	if len(sent) != 3 {
		t.Errorf("sent %v on a broken stream", sent)
	}
}
