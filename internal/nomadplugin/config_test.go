package nomadplugin_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gangd/gangd/internal/nomadplugin"
	"github.com/gangd/gangd/internal/nomadplugin/nomadplugintest"
	"github.com/gangd/gangd/internal/nomadplugin/schema"
)

type rank struct {
	Name string            `codec:"name"`
	Env  map[string]string `codec:"env"`
}

type settings struct {
	Command string            `codec:"command"`
	Args    []string          `codec:"args"`
	Count   int               `codec:"count"`
	Small   uint8             `codec:"small"`
	Scale   float64           `codec:"scale"`
	Wait    time.Duration     `codec:"wait"`
	Debug   bool              `codec:"debug"`
	Labels  map[string]string `codec:"labels"`
	Limits  *rank             `codec:"limits"`
	Ranks   []rank            `codec:"ranks"`
	Named   map[string]rank   `codec:"named"`
	Key     []byte            `codec:"key"`
	Free    any               `codec:"free"`
	Runtime string
}

var settingsSchema = func() *schema.Spec {
	rank := schema.Object(schema.Fields{
		"name": schema.Attr("name", schema.String, true),
		"env":  schema.Attr("env", "map(string)", false),
	})
	return schema.Object(schema.Fields{
		"command": schema.Attr("command", schema.String, true),
		"args":    schema.Attr("args", "list(string)", false),
		"count":   schema.Default(schema.Attr("count", schema.Number, false), schema.Literal("8")),
		"small":   schema.Attr("small", schema.Number, false),
		"scale":   schema.Attr("scale", schema.Number, false),
		"wait":    schema.Default(schema.Attr("wait", schema.String, false), schema.Literal(`"30s"`)),
		"debug":   schema.Attr("debug", schema.Bool, false),
		"labels":  schema.BlockAttrs("labels", schema.String, false),
		"limits":  schema.Block("limits", false, rank),
		"ranks":   schema.BlockList("rank", rank),
		"named":   schema.BlockMap("named", []string{"name"}, rank),
	})
}()

func TestDecodeWhatNomadMakesOfHCL(t *testing.T) {
	config := nomadplugintest.Config(t, settingsSchema, `
		command = "render"
		args    = ["-v", "ä"]
		small   = 255
		scale   = 0.1 # sent as text: no binary number is exactly it
		wait    = "1m30s"
		debug   = true
		labels { team = "video" }
		limits { name = "soft" }
		rank {
			name = "zero"
			env  = { RANK = "0" }
		}
		rank { name = "one" }
		named "x" { name = "ex" }
	`)
	var got settings
	if err := config.Decode(&got); err != nil {
		t.Fatal(err)
	}
	want := settings{
		Command: "render", Args: []string{"-v", "ä"}, Count: 8, Small: 255, Scale: 0.1, Wait: 90 * time.Second, Debug: true,
		Labels: map[string]string{"team": "video"}, Limits: &rank{Name: "soft"},
		Ranks: []rank{{Name: "zero", Env: map[string]string{"RANK": "0"}}, {Name: "one"}},
		Named: map[string]rank{"x": {Name: "ex"}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("decoded\n%+v, want\n%+v", got, want)
	}
}

func TestDecodeLeavesDefaults(t *testing.T) {
	for name, config := range map[string]nomadplugin.Config{
		"no configuration":  nil,
		"null":              nomadplugin.Config("\xc0"),
		"nothing but nulls": nomadplugintest.Config(t, schema.Object(schema.Fields{"scale": schema.Attr("scale", "number", false)}), ""),
	} {
		got := settings{Scale: 2, Runtime: "kept"}
		if err := config.Decode(&got); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if want := (settings{Scale: 2, Runtime: "kept"}); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: decoded %+v", name, got)
		}
	}
}

// Nomad has two encoders; the older one writes text as raw bytes and numbers
// in the width of their Go type. Every form must give the same field.
func TestDecodeEveryEncoding(t *testing.T) {
	for _, test := range []struct {
		name, bytes string
		want        settings
	}{
		{"fixed text", "\x81\xa7command\xa2go", settings{Command: "go"}},
		{"text with 8-bit length", "\x81\xa7command\xd9\x02go", settings{Command: "go"}},
		{"raw with 16-bit length", "\x81\xda\x00\x07command\xda\x00\x02go", settings{Command: "go"}},
		{"binary text and name", "\x81\xc4\x07command\xc4\x02go", settings{Command: "go"}},
		{"map with 16-bit length", "\xde\x00\x01\xa7command\xa2go", settings{Command: "go"}},
		{"list with 32-bit length", "\x81\xa4args\xdd\x00\x00\x00\x01\xa1x", settings{Args: []string{"x"}}},
		{"8-bit number", "\x81\xa5count\x07", settings{Count: 7}},
		{"negative number", "\x81\xa5count\xf9", settings{Count: -7}},
		{"64-bit number", "\x81\xa5count\xd3\x00\x00\x00\x00\x00\x00\x00\x07", settings{Count: 7}},
		{"64-bit unsigned", "\x81\xa5count\xcf\x00\x00\x00\x00\x00\x00\x00\x07", settings{Count: 7}},
		{"whole number as double", "\x81\xa5count\xcb\x40\x1c\x00\x00\x00\x00\x00\x00", settings{Count: 7}},
		{"number as text", "\x81\xa5count\xa17", settings{Count: 7}},
		{"double from whole", "\x81\xa5scale\x07", settings{Scale: 7}},
		{"32-bit double", "\x81\xa5scale\xca\x3f\x00\x00\x00", settings{Scale: 0.5}},
		{"bytes", "\x81\xa3key\xc4\x02\x00\xff", settings{Key: []byte{0, 255}}},
		{"anything", "\x81\xa4free\x92\x01\xc0", settings{Free: []any{int64(1), nil}}},
	} {
		var got settings
		if err := nomadplugin.Config(test.bytes).Decode(&got); err != nil {
			t.Errorf("%s: %v", test.name, err)
		} else if !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: decoded %+v, want %+v", test.name, got, test.want)
		}
	}
}

func TestDecodeNamesTheFieldThatIsWrong(t *testing.T) {
	for _, test := range []struct{ name, bytes, want string }{
		{"unknown field", "\x81\xa5cuont\x07", "configuration: cuont: there is no such field; there are args, command, count"},
		{"text for a number", "\x81\xa5count\xa4many", `configuration: count: a whole number is expected, found the text "many"`},
		{"fraction", "\x81\xa5count\xcb\x3f\xe0\x00\x00\x00\x00\x00\x00", "configuration: count: a whole number is expected, found 0.5"},
		{"too large", "\x81\xa5small\xcd\x01\x00", "configuration: small: 256 is out of the range of uint8"},
		{"negative", "\x81\xa5small\xff", "configuration: small: a whole number from 0 is expected, found -1"},
		{"number for a text", "\x81\xa7command\x07", "configuration: command: a text is expected, found 7"},
		{"text for a truth", "\x81\xa5debug\xa3yes", `configuration: debug: true or false is expected, found the text "yes"`},
		{"text for a list", "\x81\xa4args\xa1x", `configuration: args: a list is expected, found the text "x"`},
		{"list for a map", "\x81\xa6labels\x90", "configuration: labels: a map is expected, found a list"},
		{"list for a block", "\x81\xa6limits\x90", "configuration: limits: a block or an object is expected, found a list"},
		{"bad duration", "\x81\xa4wait\xa3now", `configuration: wait: a duration such as "30s" is expected, found the text "now"`},
		{"bare duration", "\x81\xa4wait\x1e", `configuration: wait: a duration such as "30s" is expected, found 30`},
		{"in a list and a map", "\x81\xa5ranks\x92\x80\x81\xa3env\x81\xa1A\x01", `configuration: ranks[1].env["A"]: a text is expected, found 1`},
		{"not a map", "\x07", "configuration: a block or an object is expected, found 7"},
		{"unknown value", "\x81\xa5count\xd4\x00\x00", "extension value"},
		{"number as name", "\x81\x07\x07", "a map has the key 7"},
		{"cut short in a text", "\x81\xa5coun", "unexpected EOF"},
		{"cut short in a list", "\x81\xa4args\x92\xa1x", "unexpected EOF"},
		{"longer than it is", "\x81\xc6\xff\xff\xff\xff", "unexpected EOF"},
		{"more than there are", "\xdf\xff\xff\xff\xff", "unexpected EOF"},
		{"something behind", "\x80\x80", "1 bytes follow"},
		{"nested without end", strings.Repeat("\x91", 1<<20), "nested more than 32 deep"},
	} {
		var got settings
		err := nomadplugin.Config(test.bytes).Decode(&got)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", test.name, err, test.want)
		}
	}
	if err := (nomadplugin.Config("\x80")).Decode(settings{}); err == nil {
		t.Error("decoded into a struct that is not pointed to")
	}
}

// Bytes that nobody sends must not end the plugin.
func TestDecodeSurvivesAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		config := nomadplugin.Config(rapid.SliceOfN(rapid.Byte(), 0, 64).Draw(t, "config"))
		var got settings
		_ = config.Decode(&got)
	})
}
