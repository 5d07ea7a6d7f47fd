(define (sort items less?) (#%list-sort items less?))
(define (list-copy items) (append items '()))
(define (delete item items) (filter (lambda (other) (not (equal? item other))) items))
(define (string-lines text) (split-many text "\n"))
