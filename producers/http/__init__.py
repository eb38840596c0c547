"""A device that reports over HTTP: reports wait in a file until the gateway has acknowledged them.

`http_reporter` randomizes values and puts them into `report_queue`, a SQLite file (`queue_file`).
`posting_thread` posts its batches, with `gateway_client`; `gateway_answers` says what the gateway's
answers mean.
"""
