module skirnir

go 1.19
