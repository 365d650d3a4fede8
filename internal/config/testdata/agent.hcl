# The configuration of a gangd agent. All that is shown with a value here has
# that value as its default, but blob, which is required. Read it with
#
#     gangd agent -config FILE|DIR

name      = "agent-1" # default: the host's name
log_level = "info" # trace, debug, info, warn, error
log_json  = false

# Users: the CLI, curl, Prometheus.
http {
  address = "127.0.0.1:4750"
}

# Nodes: the driver and device plugins, and the keepers of lanes.
link {
  address   = "127.0.0.1:4751"
  advertise = "" # what nodes are told; default: address
}

consul {
  address = "http://127.0.0.1:8500"
  token   = "" # default: CONSUL_HTTP_TOKEN
  prefix  = "gangd"
}

nomad {
  address   = "http://127.0.0.1:4646"
  token     = "" # default: NOMAD_TOKEN
  namespace = "default"
  node_pool = "default"
}

# Where artifacts go: a URL of gocloud.dev/blob.
blob {
  url = "file:///var/lib/gangd/blobs"
}

# Widest level first; the node is below the last one. The domain of a node at
# a level is the value of its Nomad metadata key meta_prefix + level.
topology {
  levels      = ["spine", "leaf"]
  meta_prefix = "gangd_"
}

# Service classes. These three are built in; what a block of the same name does
# not say stays as it is, and a block of another name adds one.
tier "interactive" {
  priority = 300
  # Whose gangs may be stopped for gangs of this tier, how long those may take to
  # save their state, and how long a gang of this tier runs before it may be
  # stopped itself.
  preempts  = ["production", "background"]
  grace     = "10s"
  protected = "60s"
  # The part of the cluster that is this tier's under contention, whatever the
  # tiers above it want. Without one a tier may wait for ever.
  min_share = 0
}
tier "production" {
  priority  = 200
  preempts  = ["background"]
  grace     = "10s"
  protected = "60s"
}
tier "background" {
  priority  = 100
  grace     = "10s"
  protected = "60s"
  min_share = 0.05
}

# Shares follow weights; what was used fades by half in this time.
fairness {
  half_life = "1h"
  # Preemptions a minute; 0 is no bound.
  preemption_plans_per_minute = 0
}

start {
  # A gang whose members are not all ready by then is stopped whole, and
  # queued again. A template's own ready_timeout goes before this one.
  ready_timeout = "60s"
}

limits {
  queue                 = 100000
  submissions_in_flight = 1024
}
