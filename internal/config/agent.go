package config

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/hashicorp/hcl/v2"

	"github.com/gangd/gangd/internal/schedule"
)

// Agent is the configuration of an agent, with defaults filled in.
type Agent struct {
	// Name is this agent's own, for logs and the leader's record.
	Name     string
	LogLevel string
	LogJSON  bool

	HTTP     HTTP
	Link     Link
	Consul   Consul
	Nomad    Nomad
	Blob     Blob
	Topology Topology
	// Rules are those of the engine. Tiers are sorted by priority, highest first,
	// then by name.
	Rules  schedule.Config
	Start  Start
	Limits Limits
}

// HTTP is where users are served, and the address that other agents are told.
type HTTP struct{ Address, Advertise string }

// Link is where nodes are served, and the address that they are told.
type Link struct{ Address, Advertise string }

// Consul is the server with the durable state.
type Consul struct{ Address, Token, Prefix string }

// Nomad is the server that holds lanes.
type Nomad struct{ Address, Token, Namespace, NodePool string }

// Blob is the store of artifacts, as a URL of gocloud.dev/blob.
type Blob struct{ URL string }

// Topology names the levels of the cluster, widest first. A node's domain at
// a level is the value of its metadata key MetaPrefix + level in Nomad.
type Topology struct {
	Levels     []string
	MetaPrefix string
}

// Start bounds how long a gang's members may take until all are ready.
type Start struct{ ReadyTimeout time.Duration }

// Limits bound what an agent holds at once.
type Limits struct{ Queue, SubmissionsInFlight int }

func defaultAgent() *Agent {
	host, err := os.Hostname()
	if err != nil {
		host = "gangd"
	}
	return &Agent{
		Name:     host,
		LogLevel: "info",
		HTTP:     HTTP{Address: "127.0.0.1:4750"},
		Link:     Link{Address: "127.0.0.1:4751"},
		Consul:   Consul{Address: "http://127.0.0.1:8500", Token: os.Getenv("CONSUL_HTTP_TOKEN"), Prefix: "gangd"},
		Nomad: Nomad{
			Address: "http://127.0.0.1:4646", Token: os.Getenv("NOMAD_TOKEN"),
			Namespace: "default", NodePool: "default",
		},
		Topology: Topology{Levels: []string{"spine", "leaf"}, MetaPrefix: "gangd_"},
		Start:    Start{ReadyTimeout: time.Minute},
		Limits:   Limits{Queue: 100_000, SubmissionsInFlight: 1024},
	}
}

// LoadAgent reads the configuration from files, and from all *.hcl of
// directories in the order of their names, as one. Whatever is wrong with it
// makes an *UnreadableError.
func LoadAgent(paths ...string) (*Agent, error) {
	files, err := expand(paths)
	if err != nil {
		return nil, err
	}
	var parsed []*hcl.File
	var diags hcl.Diagnostics
	sources := map[string]*hcl.File{}
	for _, name := range files {
		src, err := readFile(name)
		if err != nil {
			return nil, err
		}
		file, d := parse(name, src)
		diags = append(diags, d...)
		sources[name] = file
		parsed = append(parsed, file)
	}
	if diags.HasErrors() {
		return nil, unreadable(diags, sources)
	}
	r := &agentReader{agent: defaultAgent()}
	r.rulesReader = newRulesReader(&r.bodyReader, &r.agent.Rules, protected)
	r.file(hcl.MergeFiles(parsed))
	if err := unreadable(r.diags, sources); err != nil {
		return nil, err
	}
	return r.agent, nil
}

// expand replaces directories by the *.hcl files in them.
func expand(paths []string) ([]string, error) {
	if len(paths) == 0 {
		return nil, unreadableFile("No configuration", "name a file or a directory with *.hcl files")
	}
	var files []string
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, unreadableFile("Cannot read the configuration", "%v", err)
		}
		if !info.IsDir() {
			files = append(files, path)
			continue
		}
		found, err := filepath.Glob(filepath.Join(escapeGlob(path), "*.hcl"))
		if err != nil {
			return nil, unreadableFile("Cannot read the configuration", "%s: %v", path, err)
		}
		if len(found) == 0 {
			return nil, unreadableFile("Cannot read the configuration", "the directory %s holds no *.hcl file", path)
		}
		files = append(files, found...)
	}
	return files, nil
}

// readFile reads one byte more than may be, so that the parser sees the limit
// broken.
func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, unreadableFile("Cannot read the configuration", "%v", err)
	}
	defer f.Close()
	src, err := io.ReadAll(io.LimitReader(f, MaxFileBytes+1))
	if err != nil {
		return nil, unreadableFile("Cannot read the configuration", "%v", err)
	}
	return src, nil
}

// agentReader reads the schema of an agent's configuration.
type agentReader struct {
	bodyReader
	rulesReader
	agent *Agent
}

// protected is the time after a start in which an agent has nobody stopped for
// others: a gang that has hardly loaded its weights would begin again and again.
const protected = time.Minute

func (r *agentReader) file(body hcl.Body) {
	a := r.agent
	one := func(kind string, attributes ...attribute) nested {
		return nested{kind: kind, read: func(b *hcl.Block) { r.read(b.Body, attributes) }}
	}
	r.read(body,
		[]attribute{
			{name: "name", set: nameOf(&a.Name)},
			{name: "log_level", set: oneOf(&a.LogLevel, "trace", "debug", "info", "warn", "error")},
			{name: "log_json", set: boolean(&a.LogJSON)},
		},
		slices.Concat([]nested{
			{kind: "http", read: r.listener(&a.HTTP.Address, &a.HTTP.Advertise,
				"Other agents cannot forward to %s: set advertise to the address at which they reach this agent.")},
			{kind: "link", read: r.listener(&a.Link.Address, &a.Link.Advertise,
				"Nodes cannot be told to connect to %s: set advertise to the address at which they reach this agent.")},
			one("consul",
				attribute{name: "address", set: server(&a.Consul.Address)},
				attribute{name: "token", set: optional(text(&a.Consul.Token))},
				attribute{name: "prefix", set: keyPrefix(&a.Consul.Prefix)}),
			one("nomad",
				attribute{name: "address", set: server(&a.Nomad.Address)},
				attribute{name: "token", set: optional(text(&a.Nomad.Token))},
				attribute{name: "namespace", set: nameOf(&a.Nomad.Namespace)},
				attribute{name: "node_pool", set: nameOf(&a.Nomad.NodePool)}),
			one("blob", attribute{name: "url", required: true, set: blobURL(&a.Blob.URL)}),
			one("topology",
				attribute{name: "levels", set: levels(&a.Topology.Levels)},
				attribute{name: "meta_prefix", set: nameOf(&a.Topology.MetaPrefix)}),
		}, r.ruleBlocks(), []nested{
			one("start", attribute{name: "ready_timeout", set: timeout(&a.Start.ReadyTimeout)}),
			one("limits",
				attribute{name: "queue", set: numberBetween(&a.Limits.Queue, 1, 1_000_000)},
				attribute{name: "submissions_in_flight", set: numberBetween(&a.Limits.SubmissionsInFlight, 1, 65_536)}),
		})...)
	r.checkLater()
	r.finish(body)
}

// listener reads an address to listen at, and the one that others are told,
// which is needed where the first is no address of one interface.
func (r *agentReader) listener(address, advertise *string, problem string) func(*hcl.Block) {
	return func(b *hcl.Block) {
		found := r.read(b.Body, []attribute{
			{name: "address", set: hostPort(address)},
			{name: "advertise", set: optional(hostPort(advertise))},
		})
		if found.faulty["address"] || found.faulty["advertise"] || *advertise != "" || !unspecified(*address) {
			return
		}
		r.diags = append(r.diags, fault("advertise", found.at["address"], "Missing advertise", fmt.Sprintf(problem, *address)))
	}
}

// finish fills in what follows from the rest, and says what is missing from
// it.
func (r *agentReader) finish(body hcl.Body) {
	a := r.agent
	if a.Blob.URL == "" && !r.diags.HasErrors() {
		r.diags = append(r.diags, fault("blob", body.MissingItemRange(), "Missing blob block",
			`Say where artifacts go: blob { url = "file:///var/lib/gangd/blobs" }, or "s3://BUCKET?region=REGION".`))
	}
	if a.HTTP.Advertise == "" {
		a.HTTP.Advertise = a.HTTP.Address
	}
	if a.Link.Advertise == "" {
		a.Link.Advertise = a.Link.Address
	}
	a.Rules.Levels = a.Topology.Levels
	slices.SortFunc(a.Rules.Tiers, func(x, y schedule.Tier) int {
		return cmp.Or(cmp.Compare(y.Priority, x.Priority), cmp.Compare(x.Name, y.Name))
	})
}
