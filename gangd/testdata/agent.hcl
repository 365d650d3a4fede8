http {
  address = "4750"
}
blob {
  uri = "file:///b"
}
