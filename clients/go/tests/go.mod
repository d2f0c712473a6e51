module skirnir_tests

go 1.19

require (
	github.com/go-sql-driver/mysql v1.7.1
	github.com/lib/pq v1.10.9
	github.com/mattn/go-sqlite3 v1.14.22
	skirnir v0.0.0
)

replace skirnir => ../
