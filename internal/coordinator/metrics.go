package coordinator

import (
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gangd/gangd/internal/cluster"
	"github.com/gangd/gangd/internal/gang"
	"github.com/gangd/gangd/internal/schedule"
)

// Metrics is what /metrics shows of the coordinator.
type Metrics struct {
	steps   *prometheus.HistogramVec
	commits prometheus.Histogram
	batches prometheus.Counter
	faults  prometheus.Counter
	gangs   *prometheus.GaugeVec
	gpus    *prometheus.GaugeVec
	lanes   prometheus.Gauge
	queues  *prometheus.CounterVec
	broken  prometheus.Counter
	cut     prometheus.Counter

	// observed is when the gauges were read last; states is where the gangs are
	// counted. Both belong to the loop.
	observed time.Time
	states   map[gang.State]int
	// counted is what the engine of this term had counted by then.
	counted schedule.Counts
}

// NewMetrics makes the metrics; Register puts them into a registry.
func NewMetrics() *Metrics {
	latency := prometheus.ExponentialBuckets(10e-6, 2, 18) // 10 us to 1.3 s
	return &Metrics{
		states: make(map[gang.State]int),
		steps: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "gangd_step_seconds", Help: "Time to take in one input, decisions included, by its kind.", Buckets: latency}, []string{"input"}),
		commits: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "gangd_commit_seconds", Help: "Time to make a group of batches durable in Consul.", Buckets: latency}),
		batches: prometheus.NewCounter(prometheus.CounterOpts{Name: "gangd_batches_total", Help: "Batches made durable in Consul."}),
		faults:  prometheus.NewCounter(prometheus.CounterOpts{Name: "gangd_faults_total", Help: "Things that should not have happened; each is in the log."}),
		gangs:   prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "gangd_gangs", Help: "Gangs by state, ended ones as long as they are kept; at the leader."}, []string{"state"}),
		gpus:    prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "gangd_gpus", Help: "GPUs by model and by what they are: total, usable, free."}, []string{"model", "kind"}),
		queues: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gangd_queue_full_total", Help: "Times that one came to a queue that was full: inputs and effects of the loop, and calls, wait; requests, followers and gangs are refused."}, []string{"queue"}),
		broken: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "gangd_broken_plans_total", Help: "Preemptions whose room was lost before the gang that they were for had it."}),
		cut: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "gangd_cut_searches_total", Help: "Searches of the engine that a bound ended before all was looked at: for victims, sizes, or a settled queue."}),
		lanes: prometheus.NewGauge(prometheus.GaugeOpts{Name: "gangd_lanes", Help: "Lanes that are not yet forgotten."}),
	}
}

// Register puts the metrics into a registry.
func (m *Metrics) Register(r prometheus.Registerer) error {
	for _, c := range []prometheus.Collector{m.steps, m.commits, m.batches, m.faults, m.gangs, m.gpus, m.lanes, m.queues, m.broken, m.cut} {
		if err := r.Register(c); err != nil {
			return fmt.Errorf("register metrics: %w", err)
		}
	}
	return nil
}

func (m *Metrics) stepped(in Input, took time.Duration) {
	kind := strings.TrimPrefix(fmt.Sprintf("%T", in), "coordinator.")
	m.steps.WithLabelValues(kind).Observe(took.Seconds())
}

func (m *Metrics) committed(batches int, took time.Duration) {
	m.batches.Add(float64(batches))
	m.commits.Observe(took.Seconds())
}

func (m *Metrics) full(queue string) { m.queues.WithLabelValues(queue).Inc() }

// observeEvery is how often the gauges are read off the core, which walks over
// all gangs for it.
const observeEvery = time.Second

// observe reads the gauges off the core; it runs within the loop.
func (m *Metrics) observe(c *Core) {
	if c.now.Sub(m.observed) < observeEvery {
		return
	}
	m.observed = c.now
	clear(m.states)
	for _, g := range c.bySeq {
		m.states[g.rec.State]++
	}
	for _, row := range gang.Transitions() {
		m.gangs.WithLabelValues(string(row.From)).Set(float64(m.states[row.From]))
	}
	root := c.engine.Cluster().Root()
	for _, model := range c.engine.Cluster().Models() {
		m.gpus.WithLabelValues(model, "total").Set(float64(root.GPUs(cluster.Total, model)))
		m.gpus.WithLabelValues(model, "usable").Set(float64(root.GPUs(cluster.Usable, model)))
		m.gpus.WithLabelValues(model, "free").Set(float64(root.GPUs(cluster.Free, model)))
	}
	m.lanes.Set(float64(len(c.lanes)))
	counts := c.engine.Counts
	m.broken.Add(float64(counts.BrokenPlans - m.counted.BrokenPlans))
	m.cut.Add(float64(counts.CutSearches - m.counted.CutSearches))
	m.counted = counts
}

// deposed takes the gauges away: they are for the leader to show, and would be
// counted twice.
func (m *Metrics) deposed() {
	m.observed, m.counted = time.Time{}, schedule.Counts{}
	m.gangs.Reset()
	m.gpus.Reset()
	m.lanes.Set(0)
}
