name      = 5
log_level = "loud"
log_jason = true

http {
  address = "4750"
}
link {
  address = "0.0.0.0:4751"
}
consul {
  address = "ftp://consul"
  prefix  = "/"
}
nomad {
  address   = ""
  namespace = ""
}
blob {
  url = "artifacts"
}
topology {
  levels = ["spine", "node"]
}
tier "Gold" {
  priority = 5000
}
tier "gold" {
  priority = 1
}
tier "gold" {
  priority = 2
}
start {
  ready_timeout = "0s"
}
limits {
  queue = 0
}
