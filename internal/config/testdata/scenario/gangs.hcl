cluster {
  node "n" {
    count = 4
  }
}
gang "A" {
  gpus          = 12
  gpus_per_node = 8
  tier          = "gold"
  duration      = "10 minutes"
  topology {
    require = "rack"
    prefer  = "leaf"
  }
}
gang "B" {
  count    = 2
  gpus     = 24
  duration = "60s"
  elastic  = { "8" = "110s" }
  topology {
    segment = 2
  }
  exit {
    member    = 3
    retryable = "no"
  }
}
gang "B-1" {
  gpus     = 0
  duration = "60s"
  every    = "1s"
}
gang "far" {
  count    = 100000
  every    = "2h"
  gpus     = 8
  duration = "90000h"
}
gang "far" {
  gpus = 8
  gpus_per_nodes = 8
}
gang "sizes" {
  gpus     = 12
  duration = "60s"
  elastic  = { "4" = "3m", "8" = "2m", "12" = "1m" }
}
