package config

import (
	"errors"
	"strings"
	"testing"

	"github.com/gangd/gangd/internal/gang"
)

// What the cluster refuses is shown where it was asked for.
func TestRefusalsAreLocated(t *testing.T) {
	const pair = "gang \"lake\" {\n  template = \"ddim\"\n  gpus = 8\n}\n" +
		"gang \"sea\" {\n  template = \"ddim\"\n  gpus = 64\n  topology {\n    require = \"rack\"\n  }\n}\n"
	const list = "[{\"name\": \"lake\", \"template\": \"ddim\", \"gpus\": 8},\n {\"name\": \"sea\", \"template\": \"ddim\", \"gpus\": 64}]"
	named := func(name string, err error) error { return gang.NameRefused(name, err) }
	for _, c := range []struct {
		name, src string
		err       error
		want      string
	}{
		{"an attribute of the second gang", pair, named("sea", gang.RefuseField("gpus", "64 are asked for")),
			"f:7: Refused (in gang \"sea\")\n  7 |   gpus = 64\n    |          ^^\n  gpus: 64 are asked for"},
		{"one in a block", pair, named("sea", gang.RefuseField("topology.require", "no rack")),
			"f:9: Refused (in gang \"sea\")\n  9 |     require = \"rack\"\n    |               ^^^^^^\n  topology.require: no rack"},
		{"one that is a default", pair, named("sea", gang.RefuseField("tier", "\"production\" is not configured")),
			"f:5: Refused (in gang \"sea\")\n  5 | gang \"sea\" {\n    | ^^^^^^^^^^\n  tier: \"production\" is not configured"},
		{"several lines", pair, named("sea", gang.RefuseField("template", "it lacks\n  this\n  and that")),
			"f:6: Refused (in gang \"sea\")\n  6 |   template = \"ddim\"\n    |              ^^^^^^\n  template: it lacks\n    this\n    and that"},
		{"JSON", list, named("sea", gang.RefuseField("gpus", "64 are asked for")),
			"f:2: Refused\n  2 |  {\"name\": \"sea\", \"template\": \"ddim\", \"gpus\": 64}]\n    |                                              ^^\n  gang \"sea\": gpus: 64 are asked for"},
		{"a gang that is not there", pair, named("hill", gang.RefuseField("gpus", "64")), "gang \"hill\": gpus: 64"},
		{"no gang in particular", pair, gang.Refuse("too many"), "too many"},
		{"another error", pair, errors.New("no agent"), "no agent"},
		{"a file that cannot be read", "gang {", named("sea", gang.Refuse("no")), "gang \"sea\": no"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Locate("f", []byte(c.src), c.err)
			if got.Error() != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
			var before, after *gang.RefusedError
			if errors.As(c.err, &before) && (!errors.As(got, &after) || after.Gang != before.Gang || after.Field != before.Field) {
				t.Errorf("it is no longer the refusal that it was: %#v", got)
			}
		})
	}
}

func TestARefusalOfAFileNamesItsField(t *testing.T) {
	_, err := ParseGangs("f", []byte("gang \"a\" {\n template = \"t\"\n gpus = 12\n gpus_per_node = 8\n}\n"))
	var refused *gang.RefusedError
	if !errors.As(err, &refused) || refused.Field != "gpus" || !strings.HasPrefix(err.Error(), "f:3: ") {
		t.Errorf("got %#v", err)
	}
}
