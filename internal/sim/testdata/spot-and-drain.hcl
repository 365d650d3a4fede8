# A gang saves and leaves a spot node before its notice has run out, and later a node that is drained.
cluster {
  node "s" {
    spot = true
  }
  node "n" {
    count = 2
  }
}
gang "train" {
  at            = "2s"
  gpus          = 8
  duration      = "300s"
  infra_retries = 0
  checkpoint {
    every   = "100s"
    cost    = "2s"
    restore = "3s"
  }
}
event {
  at   = "0s"
  kind = "drain"
  node = "n-0"
}
event {
  at   = "1s"
  kind = "drain"
  node = "n-1"
}
event {
  at   = "10s"
  kind = "undrain"
  node = "n-0"
}
event {
  at     = "50s"
  kind   = "spot_notice"
  node   = "s"
  notice = "30s"
}
event {
  at   = "120s"
  kind = "undrain"
  node = "n-1"
}
event {
  at   = "150s"
  kind = "drain"
  node = "n-0"
}
