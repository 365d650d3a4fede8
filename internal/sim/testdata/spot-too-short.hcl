# The notice is too short to save in: the gang may run on until its node is gone, and goes on from its last checkpoint.
cluster {
  node "s" {
    spot = true
  }
  node "n" {}
}
gang "train" {
  gpus          = 8
  duration      = "100s"
  infra_retries = 0
  checkpoint {
    every   = "20s"
    cost    = "10s"
    restore = "3s"
  }
}
gang "other" {
  gpus     = 8
  duration = "10s"
}
event {
  at     = "50s"
  kind   = "spot_notice"
  node   = "s"
  notice = "5s"
}
