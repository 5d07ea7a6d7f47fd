//! What of the engine's own a form gets: a list of names, all of them pure. What is not on it does
//! not exist for a form, whatever a later version of the engine adds; a test compares the names that
//! a started session knows with a committed list.

/// The engine's functions and constants that touch nothing outside the session.
pub(super) const ALLOWED: &str = "
    #%box #%const-list #%function-pointer? #%iterator-finished #%list-sort #%reducer->int #%set-box!
    #%stream-cdr #%transducers->funcs #%unbox %iterator? * + - / < <= = > >= Err Err->value Err?
    None None? Ok Ok->value Ok? Some Some->value Some? abs acos angle append apply arithmetic-shift
    arity? asin assert! atan atom? bitwise-and bitwise-ior bitwise-not bitwise-xor bool? boolean?
    box box-strong byte? bytes bytes->list bytes->string/utf8 bytes-append bytes-clear! bytes-copy
    bytes-length bytes-push! bytes-ref bytes-set! bytes? bytevector bytevector-append
    bytevector-copy bytevector-length bytevector-u8-ref bytevector-u8-set! bytevector?
    call-with-current-continuation call-with-exception-handler call/cc car cdr cdr-null? ceiling
    char->integer char->number char-ci<=? char-ci<? char-ci=? char-ci>=? char-ci>? char-digit?
    char-downcase char-foldcase char-upcase char-whitespace? char<=? char<? char=? char>=? char>?
    char? complex? compose cons continuation? cos current-function-span current-inexact-milliseconds
    current-milliseconds denominator dropping empty-stream empty? ends-with? enumerating eof-object
    eof-object? eq? equal? eqv? error-object-message error-object? error-with-span
    euclidean-quotient euclidean-remainder euclidean/ even? exact exact->inexact exact-integer-sqrt
    exact-integer? exact? exp expt extending f+ filtering finite? first flat-mapping flattening
    float? floor floor-quotient floor-remainder floor/ function-arity function-name function?
    get-tls hash hash->list hash->vector hash-clear hash-code hash-contains? hash-empty? hash-get
    hash-insert hash-keys->list hash-keys->vector hash-length hash-ref hash-remove hash-try-get
    hash-union hash-values->list hash-values->vector hash? hashset hashset->immutable-vector
    hashset->list hashset->vector hashset-clear hashset-contains? hashset-difference hashset-insert
    hashset-intersection hashset-length hashset-subset? hashset-union imag-part immutable-vector
    immutable-vector->list immutable-vector-append immutable-vector-copy immutable-vector-drop
    immutable-vector-push immutable-vector-rest immutable-vector-set immutable-vector-take
    immutable-vector? inexact inexact->exact inexact? infinite? int->string int? integer->char
    integer? interleaving into-count into-for-each into-hashmap into-hashset into-last into-list
    into-max into-min into-nth into-product into-reducer into-string into-sum into-vector iter-next!
    last length list list->bytes list->hashset list->string list->vector list-chunks list-contains
    list-drop list-ref list-tail list? log magnitude make-bytes make-bytevector
    make-immutable-vector make-polar make-rectangular make-string make-tls make-vector mapping
    member memq modulo multi-arity? mut-vec-len mut-vector-ref mutable-vector mutable-vector->clear
    mutable-vector->list mutable-vector->string mutable-vector-pop! mutable-vector? nan? negative?
    not null? number->string number? numerator odd? pair? plist-get plist-try-get pop-front
    positive? procedure? push push-back push-front quotient raise-error raise-error-with-span range
    range-vec rational? real-part real? remainder rest reverse round second set-box! set-strong-box!
    set-tls! set? sin split-many split-once split-whitespace sqrt square starts-with? stream-car
    stream-cons stream-empty? string string->bytes string->int string->jsexpr string->list
    string->lower string->number string->symbol string->upper string->utf8 string->vector
    string-append string-ci<=? string-ci<? string-ci=? string-ci>=? string-ci>? string-contains?
    string-downcase string-foldcase string-join string-length string-push string-ref string-replace
    string-upcase string<=? string<? string=? string>=? string>? string? substring symbol->string
    symbol=? symbol? take taking tan third to-string transduce trim trim-end trim-end-matches
    trim-start trim-start-matches truncate truncate-quotient truncate-remainder truncate/
    try-list-ref unbox unbox-strong utf8->string utf8-length value->iterator value->jsexpr-string
    vec-append vec-rest vector vector-append! vector-copy vector-copy! vector-fill! vector-length
    vector-push! vector-ref vector-set! vector-swap! vector? void void? zero? zipping
";

/// Parts of the engine's own library that reach beyond it (threads for finalizers, printed help) or
/// load it: each from the first text up to the second.
pub(super) const CUT: &[(&str, &str)] = &[
    ("(provide caar", "(define (#%syntax-bindings)"),
    ("(define #%global-will-executor", ";; Note: The syntax-bindings and binding-kind"),
    ("(define-syntax help", "(define-syntax contract/out"),
];

/// Words that a form may not hold as names, in any place: with them the engine's compiler would read
/// files, build names from pieces, or look for its macro machine, which a session does not have.
pub(super) const REFUSED: &[&str] = &[
    "begin-for-syntax",
    "datum->syntax",
    "defmacro",
    "for-syntax",
    "include",
    "include-str",
    "load",
    "module",
    "provide",
    "require",
    "require-builtin",
    "syntax-const-if",
];
