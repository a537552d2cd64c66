END rounds=9963 binds=0 listens=0 answers=0
