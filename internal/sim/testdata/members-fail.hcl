# A member that fails for good ends its whole gang, and the next one starts in that second. One that may try again is started once
# more. Their neighbour notices neither.
cluster {
  node "n" {
    count  = 5
    fanout = { leaf = 5 }
  }
}
gang "broken" {
  gpus     = 24
  duration = "300s"
  exit {
    member = 1
    after  = "15s"
  }
}
gang "neighbour" {
  gpus     = 8
  duration = "150s"
}
gang "flaky" {
  gpus     = 8
  duration = "100s"
  exit {
    after     = "25s"
    retryable = true
  }
}
gang "next" {
  at       = "5s"
  gpus     = 24
  duration = "50s"
}
