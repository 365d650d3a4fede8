package trace

import (
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/gangd/gangd/internal/gang"
)

func TestRead(t *testing.T) {
	const text = "\ufeffid,duration_s, submit_s,num_gpu,vc,tier,elastic,estimate\r\n" +
		"x,61.5,20,16,acme,,,\r\n" +
		"\r\n" +
		"y,5,10,1,,interactive,,600\r\n" +
		"\"quoted, and\n over lines\",120,20,8,a/b,,4:200; 8:120,\r\n"
	got, err := Read("t.csv", strings.NewReader(text), map[string]string{"gpus": "num_gpu", "tenant": "vc"})
	if err != nil {
		t.Fatal(err)
	}
	want := []Job{
		{Line: 4, At: 10 * time.Second, GPUs: 1, Duration: 5 * time.Second, Tier: "interactive", Estimate: 10 * time.Minute},
		{Line: 2, At: 20 * time.Second, GPUs: 16, Duration: 61500 * time.Millisecond, Tenant: "acme"},
		{Line: 5, At: 20 * time.Second, GPUs: 8, Duration: 2 * time.Minute, Tenant: "a/b",
			Elastic: []gang.Size{{GPUs: 4, Run: 200 * time.Second}, {GPUs: 8, Run: 2 * time.Minute}}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestFaultsOfATrace(t *testing.T) {
	const head = "submit_s,gpus,duration_s,tenant,tier,model,elastic,estimate\n"
	for _, c := range []struct {
		name, text, want string
		titles           map[string]string
	}{
		{"nothing", "", "t.csv:1: the trace is empty: its first line must name the columns, submit_s, gpus, duration_s at least", nil},
		{"no titles", "1,2,3\n", `t.csv:1: there is no column "submit_s" among ["1" "2" "3"]: say which is meant with -column submit_s=TITLE`, nil},
		{"another title", "submit_s,gpus,duration_s\n", `t.csv:1: there is no column "vc" among ["submit_s" "gpus" "duration_s"]: say which is meant with -column tenant=TITLE`, map[string]string{"tenant": "vc"}},
		{"another column", "submit_s,gpus,duration_s\n", `there is no column "vc" to give a title: there are submit_s, gpus, duration_s, tenant, tier, model, elastic, estimate`, map[string]string{"vc": "tenant"}},
		{"short line", head + "1,2,3\n", "t.csv:2: 3 fields, where the first line has 8", nil},
		{"quotes", head + "1,\"2\" x,3,,,,,\n", `t.csv:2:5: it is no CSV here: extraneous or missing " in quoted-field`, nil},
		{"submit", head + "0,1,1,,,,,\n-1,1,1,,,,,\n", `t.csv:3:1: submit_s = "-1": must be a number of seconds from 0 to 3.1536e+08`, nil},
		{"submit of another kind", head + "2017-10-03,1,1,,,,,\n", `t.csv:2:1: submit_s = "2017-10-03": must be a number of seconds from 0 to 3.1536e+08`, nil},
		{"gpus", head + "1,1.5,1,,,,,\n", `t.csv:2:3: gpus = "1.5": must be a whole number from 1 to 1024`, nil},
		{"too many gpus", head + "1,1025,1,,,,,\n", `t.csv:2:3: gpus = "1025": must be a whole number from 1 to 1024`, nil},
		{"no time", head + "1,1,0,,,,,\n", `t.csv:2:5: duration_s = "0": must be a number of seconds from 0.001 to 3.1536e+08`, nil},
		{"NaN", head + "1,1,NaN,,,,,\n", `t.csv:2:5: duration_s = "NaN": must be a number of seconds from 0.001 to 3.1536e+08`, nil},
		{"estimate", head + "1,1,1,,,,,soon\n", `t.csv:2:11: estimate = "soon": must be a number of seconds from 0.001 to 3.1536e+08`, nil},
		{"tenant", head + "1,1,1,a b,,,,\n", `t.csv:2:7: tenant = "a b": is no name: use up to 63 letters, digits, '.', '_', '-' and '/'`, nil},
		{"elastic", head + "1,4,1,,,,4-120,\n", `t.csv:2:10: elastic = "4-120": must be at most 64 sizes with their seconds, such as 4:120;8:70`, nil},
		{"elastic descends", head + "1,4,1,,,,4:9;2:12,\n", `t.csv:2:10: elastic = "4:9;2:12": the sizes must ascend`, nil},
		{"elastic without its size", head + "1,4,1,,,,2:9;8:2,\n", `t.csv:2:10: elastic = "2:9;8:2": lacks the size that the job asks for, gpus = 4`, nil},
		{"long line", head + "1,1,1," + strings.Repeat("a", MaxLineBytes) + ",,,,\n", "t.csv:2: the line is longer than 65536 bytes", nil},
		{"long text", head + "1," + strings.Repeat("1", 100) + ",1,,,,,\n", `t.csv:2:3: gpus = "` + strings.Repeat("1", 80) + `..": must be a whole number from 1 to 1024`, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Read("t.csv", strings.NewReader(c.text), c.titles)
			if err == nil || err.Error() != c.want {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}

func TestLimitsOfATrace(t *testing.T) {
	const head = "submit_s,gpus,duration_s,note\n"
	lines := strings.Repeat("1,1,1,\n", MaxJobs)
	if jobs, err := Read("t.csv", strings.NewReader(head+lines), nil); err != nil || len(jobs) != MaxJobs {
		t.Errorf("%d jobs: %v", len(jobs), err)
	}
	var fault *Error
	if _, err := Read("t.csv", strings.NewReader(head+lines+"1,1,1,\n"), nil); !errors.As(err, &fault) || fault.Line != MaxJobs+2 {
		t.Errorf("a job too many: %v", err)
	}
	wide := "1,1,1," + strings.Repeat("x", MaxLineBytes-100) + "\n"
	if _, err := Read("t.csv", io.MultiReader(strings.NewReader(head), strings.NewReader(strings.Repeat(wide, MaxBytes/len(wide)+1))), nil); !errors.As(err, &fault) {
		t.Errorf("a trace too large: %v", err)
	}
}

// Whatever is read, what comes of it are jobs within bounds in the order of their
// arrival, or a fault with its place.
func FuzzRead(f *testing.F) {
	f.Add("submit_s,gpus,duration_s\n0,1,1\n")
	f.Add("submit_s,gpus,duration_s,tenant,tier,model,elastic,estimate\n9,8,1e3,a,b,c,4:9;8:5,7\n1,1,1,,,,,\n")
	f.Add("\ufeffgpus,submit_s,duration_s\n\"1\",2,\"3\n\"\n")
	f.Add("submit_s,gpus,duration_s\n1e308,1,-0\n")
	f.Fuzz(func(t *testing.T, text string) {
		jobs, err := Read("t.csv", strings.NewReader(text), nil)
		if err != nil {
			var fault *Error
			if !errors.As(err, &fault) || fault.Line < 1 || fault.Problem == "" {
				t.Errorf("a fault without its place: %#v", err)
			}
			return
		}
		last := time.Duration(0)
		for _, j := range jobs {
			if j.At < last || j.At > longest || j.GPUs < 1 || j.GPUs > gang.MaxGPUs || j.Duration <= 0 || j.Duration > longest || j.Estimate < 0 {
				t.Errorf("job %+v after %s", j, last)
			}
			last = j.At
		}
	})
}
