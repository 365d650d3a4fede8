cluster {
  levels = ["spine", "leaf"]
  node "n" {
    count  = 4
    fanout = { leaf = 2, spine = 2 }
  }
  node "a" {
    gpus = 4
    gpu  = "A100-80GB"
    at   = { spine = "s", leaf = "l" }
  }
}
tier "background" {
  priority = 50
}
tenant "acme" {
  weight = 2.5
}
gang "wide" {
  at       = "90s"
  gpus     = 16
  duration = "2h"
  estimate = "1h"
  tenant   = "acme"
  topology {
    require = "leaf"
  }
}
gang "pair" {
  gpus          = 8
  gpus_per_node = 4
  duration      = "1.5s"
  tier          = "interactive"
}
gang "one" {
  count    = 2
  every    = "10s"
  gpus     = 1
  gpu      = "A100-80GB"
  duration = "30s"
  tier     = "background"
}
