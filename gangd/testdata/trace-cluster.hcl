cluster {
  node "n" {
    count = 2
  }
}
