# A tenant with a guarantee gets it back from one that has borrowed the cluster, and no more than that.
cluster {
  node "n" {
    count  = 3
    fanout = { leaf = 3 }
  }
}
tenant "owner" {
  guaranteed = 16
}
gang "borrow" {
  count    = 3
  tenant   = "borrower"
  gpus     = 8
  duration = "600s"
  checkpoint {
    every   = "30s"
    cost    = "1s"
    restore = "2s"
  }
}
gang "own" {
  at       = "100s"
  tenant   = "owner"
  gpus     = 16
  duration = "60s"
}
gang "more" {
  at       = "120s"
  tenant   = "owner"
  gpus     = 8
  duration = "30s"
}
